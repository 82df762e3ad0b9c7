import pytest

from topicscope.errors import InputError
from topicscope.lab import load_recipe, make_recipe


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('name = "x"\n[training]\nsteps = 7\n[[training.stages]]\nshare = 1.0\ntrain = ["W_V"]\n')
    return path


def test_defaults_are_the_papers_experiment() -> None:
    recipe = make_recipe({})
    assert (recipe.data.num_topics, recipe.data.words_per_topic, recipe.data.alpha) == (10, 10, 0.1)
    assert (recipe.data.length, recipe.data.topics_per_document) == ((100, 150), None)
    assert (recipe.masking.p_mask, recipe.masking.p_correct, recipe.masking.p_random) == (0.15, 0.1, 0.1)
    assert recipe.setting() is None


def test_every_field_is_documented() -> None:
    for table in ("data", "masking", "model", "training", "history"):
        fields = type(getattr(make_recipe({}), table)).model_fields
        assert [name for name, field in fields.items() if not field.description] == [], table


@pytest.mark.parametrize(
    ("override", "field", "value"),
    [
        ("training.steps=2000", lambda r: r.training.steps, 2000),
        ("data.length=[5, 9]", lambda r: r.data.length, (5, 9)),
        ("data.length=12", lambda r: r.data.length, 12),
        ("training.loss=squared", lambda r: r.training.loss, "squared"),
        ("training.ridge={W_V = 1e-5}", lambda r: r.training.ridge, {"W_V": 1e-5}),
        ("training.ridge.W_V=1e-5", lambda r: r.training.ridge, {"W_V": 1e-5}),
        ("model.sigmas.W_K=0.5", lambda r: r.model.sigmas, {"W_K": 0.5}),
    ],
)
def test_override(recipe_file, override, field, value) -> None:
    assert field(load_recipe(recipe_file)) != value
    assert field(load_recipe(recipe_file, [override])) == value


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("data.num_topic=3", "data.num_topics"),
        ("dat.num_topics=3", "data"),
        ("model.sigmma=1", "model.sigma"),
        ("training.learning_rat=1", "training.learning_rate"),
        ("masking.pmask=.1", "masking.p_mask"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest_name(recipe_file, override, nearest) -> None:
    with pytest.raises(InputError, match="unknown key") as caught:
        load_recipe(recipe_file, [override])
    assert caught.value.advice == f"did you mean {nearest}?"
    assert caught.value.exit_code == 2


def test_unknown_key_inside_a_stage(tmp_path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('[[training.stages]]\nshare = 1.0\ntrain = ["W_V"]\nlearning_rat = 1.0\n')
    with pytest.raises(InputError) as caught:
        load_recipe(path)
    assert "learning_rate?" in str(caught.value.advice)


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"masking": {"p_mask": 1.5}}, "masking.p_mask"),
        (
            {"masking": {"p_correct": 0.6, "p_random": 0.6}, "data": {"topics_per_document": 2, "length": 9}},
            "p_correct",
        ),
        ({"data": {"num_topics": 3, "topics_per_document": 4, "length": 9}}, "topics_per_document"),
        ({"data": {"source": "population"}}, "data"),
        ({"data": {"length": "long"}}, "recipe: data.length\n"),
        ({"data": {"length": [1]}}, "recipe: data.length"),
        ({"training": {"batch_size": "some"}}, "recipe: training.batch_size\n"),
        ({"training": {"loss": "mse"}}, "recipe: training.loss\n"),
        ({"arrays": {"W_V": "mine"}}, "recipe: arrays.W_V\n"),
        ({"data": 3}, "recipe: data\n"),
        ({"training": {"stages": [{"share": 1}]}}, "recipe: training.stages.0.train\n"),
        ({"training": {"momentum": 0.9}}, "training"),
        ({"training": {"weight_decay": 0.1}}, "training"),
        ({"training": {"batch_size": 0}}, "expected: batch_size = 0: at least 1"),
        ({"training": {"learning_rate": float("inf")}}, "recipe: training.learning_rate\n"),
        ({"model": {"sigma": float("nan")}}, "recipe: model.sigma\n"),
        ({"training": {"batch_size": "all"}}, "all"),
        ({"training": {"stages": [{"share": 0.5, "train": ["W_V"]}]}}, "training"),
        ({"training": {"ridge": {"W_V": -1.0}}}, "training"),
        ({"model": {"embedding": "trained"}}, "width"),
        ({"data": {"topic_sizes": [1, 2], "shared_words": 1}}, "data"),
        ({"data": {"alpha": [0.1, 0.2]}}, "data"),
        ({"data": {"topic_sizes": [1, 2], "alpha": [0.1, 0.0]}}, "data"),
        ({"data": {"alpha": -0.1}}, "data"),
        ({"data": {"source": "population", "topics_per_document": 2, "linked": 0.5}}, "data"),
    ],
)
def test_impossible_choices_are_refused_by_name(document, named) -> None:
    with pytest.raises(InputError) as caught:
        make_recipe(document)
    assert named in str(caught.value)


@pytest.mark.parametrize("text", ["training.steps", "=3", "training..steps=1", "name.x=1"])
def test_broken_overrides(recipe_file, text) -> None:
    with pytest.raises(InputError):
        load_recipe(recipe_file, [text])


def test_a_file_that_is_no_recipe(tmp_path) -> None:
    (tmp_path / "bad.toml").write_text("a = = 1")
    with pytest.raises(InputError, match="not a TOML file"):
        load_recipe(tmp_path / "bad.toml")
    with pytest.raises(InputError, match="no such recipe"):
        load_recipe(tmp_path / "none.toml")
    with pytest.raises(InputError, match="no such recipe"):
        load_recipe(tmp_path)


def test_setting_exists_exactly_where_closed_forms_apply() -> None:
    one_length = {"topics_per_document": 2, "length": 50}
    assert make_recipe({"data": one_length}).setting().document_length == 50
    assert make_recipe({"data": one_length | {"length": [50, 50]}}).setting().document_length == 50
    assert make_recipe({"data": one_length | {"source": "population"}}).setting().document_length is None
    for change in (
        {"topics_per_document": None},
        {"length": [5, 6]},
        {"topic_sizes": [1, 2, 3]},
        {"shared_words": 2},
        {"linked": 0.5},
    ):
        data = {key: value for key, value in (one_length | change).items() if value is not None}
        assert make_recipe({"data": data}).setting() is None
