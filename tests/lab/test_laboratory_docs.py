"""docs/laboratory.md: its tables of fields are the recipe's."""

from pathlib import Path

from topicscope.lab import Recipe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "laboratory.md"
TEXT = PAGE.read_text(encoding="utf-8")


def field_tables() -> str:
    """The reference of all recipe fields, as the page must hold it."""
    lines = []
    for table in ("data", "masking", "model", "training", "history"):
        fields = type(getattr(Recipe.model_validate({}), table)).model_fields
        lines += [f"### [{table}]", "", "| key | default | meaning |", "| --- | --- | --- |"]
        for name, field in fields.items():
            default = field.get_default(call_default_factory=True)
            shown = "" if default is None else f"`{default!r}`"
            lines.append(f"| `{name}` | {shown} | {(field.description or '').replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)


def test_the_reference_of_fields_is_current() -> None:
    shown = TEXT.split("<!-- fields -->")[1].split("<!-- end of fields -->")[0]
    assert shown.strip() == field_tables().strip()
