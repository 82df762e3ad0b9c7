"""Topics and documents of one's own: files beside a recipe, a topic model handed in, and their resumption."""

import shutil

import numpy as np
import pytest

from lab.laboratory import stopped_run
from topicscope.errors import InputError
from topicscope.experiments import resolve
from topicscope.lab import block_means, fixed_set, load_recipe, make_recipe, train
from topicscope.records import write_npz
from topicscope.synthetic import Documents, MaskedBatch, Masking
from topicscope.topics import TopicModel, Vocabulary

DRAWN = {"num_topics": 3, "words_per_topic": 2, "length": [5, 9], "source": "fixed", "documents": 23, "specials": True}
SAVED = DRAWN | {"file": "set.npz"}
SHORT = {"steps": 60, "batch_size": 7, "checkpoint_every": 10}
# Overlapping topics of unequal sizes with unequal probabilities.
PHI = np.array([[0.5, 0.3, 0.2, 0, 0, 0], [0, 0, 0.1, 0.9, 0, 0], [0, 0.2, 0, 0, 0.4, 0.4]])
CSV = "\n".join(",".join(map(str, row)) for row in PHI)


def recipe(data, folder="", **training):
    return make_recipe({"data": data, "training": SHORT | training}, folder=folder)


def same_weights(one, two) -> None:
    for name, value in one.weights.items():
        np.testing.assert_array_equal(two.weights[name], value, err_msg=name)


def write_recipe(folder, extra: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "r.toml").write_text(f"[training]\nsteps = 30\nbatch_size = 4\n[data]\nlength = 12\n{extra}\n")


@pytest.mark.parametrize("batch_size", [7, "all"])
@pytest.mark.parametrize("engine", ["reduced", "token"])
def test_a_saved_set_trains_as_the_one_that_was_drawn(tmp_path, engine, batch_size) -> None:
    fixed_set(recipe(DRAWN)).save(tmp_path / "set.npz")
    how = {"engine": engine, "batch_size": batch_size, "steps": 20}
    drawn, saved = train(recipe(DRAWN, **how), seeds=2), train(recipe(SAVED, tmp_path, **how), seeds=2)
    same_weights(drawn, saved)
    assert list(drawn.final["loss"]) == list(saved.final["loss"])
    fixed_set(recipe(DRAWN, seed=5)).save(tmp_path / "set.npz")
    assert not np.array_equal(train(recipe(SAVED, tmp_path, **how)).weights["W_V"][0], drawn.weights["W_V"][0])


def test_a_saved_set_resumes_and_a_changed_one_is_refused(tmp_path) -> None:
    fixed_set(recipe(DRAWN)).save(tmp_path / "set.npz")
    whole = train(recipe(SAVED, tmp_path), seeds=2, out=tmp_path / "whole")
    stopped_run(recipe(SAVED, tmp_path), tmp_path / "run", 40, seeds=2)
    stopped_run(recipe(SAVED, tmp_path, checkpoint_every=1000), tmp_path / "early", 40, seeds=2)
    same_weights(whole, train(recipe(SAVED, tmp_path), seeds=2, out=tmp_path / "run", resume=True))
    assert whole.manifest.sources["inputs"].keys() == {"data.file"}
    stopped_run(recipe(SAVED, tmp_path), tmp_path / "again", 40, seeds=2)
    fixed_set(recipe(DRAWN, seed=5)).save(tmp_path / "set.npz")
    for folder, how in (("run", {}), ("again", {}), ("early", {"checkpoint_every": 1000})):
        with pytest.raises(InputError, match=r"(?s)another one.*inputs\.data\.file"):
            train(recipe(SAVED, tmp_path, **how), seeds=2, out=tmp_path / folder, resume=True)


def test_documents_of_ones_own_become_a_saved_set(tmp_path) -> None:
    documents = Documents.of([[1, 1, 2], [6, 5], [3, 4, 3, 4]], 6)
    assert documents.lengths.tolist() == [3, 2, 4]
    Masking(0.3, 0.1, 0.1, specials=True).apply(np.random.default_rng(0), documents).save(tmp_path / "set.npz")
    record = train(recipe(SAVED, tmp_path, batch_size="all"))
    # Only words that stand in one document attend to one another: attention is measured on these very documents.
    assert {"attention_same_word", "attention_same_topic"} <= set(record.final)
    batch = fixed_set(recipe(SAVED, tmp_path))
    assert sorted(batch.labels[2][(batch.labels[2] >= 1) & (batch.labels[2] <= 6)]) == [3, 3, 4, 4]
    for bad in ([], [[1], []], [[0, 1]], [[7]]):
        with pytest.raises(InputError):
            Documents.of(bad, 6)


def test_a_set_that_does_not_fit_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(InputError, match=r"data\.file names is not there") as caught:
        train(recipe(SAVED, tmp_path))
    assert "recipe's folder" in str(caught.value.advice)
    fixed_set(recipe(DRAWN)).save(tmp_path / "set.npz")
    with pytest.raises(InputError, match="other words") as caught:
        train(recipe(SAVED | {"num_topics": 4}, tmp_path))
    assert "6 words" in str(caught.value.received)
    with pytest.raises(InputError, match="START and END"):
        train(recipe(SAVED | {"specials": False}, tmp_path))
    with pytest.raises(InputError, match="batch size"):
        train(recipe(SAVED, tmp_path, batch_size=24))
    with pytest.raises(InputError, match="fixed"):
        recipe(SAVED | {"source": "fresh"})
    (tmp_path / "set.npz").write_text("not a set")
    with pytest.raises(InputError, match="npz"):
        train(recipe(SAVED, tmp_path))


BROKEN = {
    "differ in shape": lambda a: {"labels": a["labels"][:, 1:]},
    "outside the vocabulary": lambda a: {"input_ids": a["input_ids"] + 9},
    "wrong type": lambda a: {"labels": a["labels"] + 0.5},
    "no word, or padding": lambda a: {"attendable": np.ones_like(a["attendable"])},
    "nothing is selected": lambda a: {"selected": np.zeros_like(a["selected"])},
    "not a set": lambda a: {"only": a["labels"]},
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_damaged_set_is_refused_with_its_fault(tmp_path, message) -> None:
    batch = fixed_set(recipe(DRAWN))
    arrays = {n: getattr(batch, n) for n in ("input_ids", "labels", "selected", "attendable")}
    change = BROKEN[message](arrays)
    rest = {} if "only" in change else arrays | {"vocabulary_size": np.asarray(6)}
    write_npz(tmp_path / "set.npz", rest | change)
    with pytest.raises(InputError, match=message) as caught:
        MaskedBatch.load(tmp_path / "set.npz")
    assert "set.npz" in str(caught.value.where)


def test_every_way_of_naming_topics_is_the_same_training(tmp_path) -> None:
    model = TopicModel.disjoint(3, 2)
    np.save(tmp_path / "phi.npy", model.phi)
    np.savez(tmp_path / "phi.npz", phi=model.phi, words=np.array(model.vocabulary.words))
    np.savetxt(tmp_path / "phi.csv", model.phi, delimiter=",")
    (tmp_path / "named.csv").write_text("ant,bee,cat,dog,eel,fox\n" + (tmp_path / "phi.csv").read_text())
    plain = train(recipe({"num_topics": 3, "words_per_topic": 2, "length": 12}))
    for name in ("phi.npy", "phi.npz", "phi.csv", "named.csv"):
        record = train(recipe({"phi": name, "length": 12}, tmp_path))
        same_weights(plain, record)
        assert record.config["data"]["phi"] == name  # and no path of this machine
    handed_in = train(recipe({"length": 12}), topic_model=model)
    same_weights(plain, handed_in)
    assert handed_in.manifest.sources["topics"] == {"number": 3, "words": 6}


def test_any_phi_trains_to_the_optimum_of_its_own_topics(tmp_path) -> None:
    """Theorem 2's generalisation: at N = ∞ the least loss is 1 - tr(Φ E[θθᵀ] Φᵀ); another phi's is missed."""
    (tmp_path / "phi.csv").write_text(CSV)
    how = {"loss": "squared", "optimizer": "sgd", "learning_rate": 5.0, "steps": 4000, "dtype": "float64"}
    tables = {
        "data": {"phi": "phi.csv", "source": "population", "topics_per_document": 2},
        "model": {"attention": "uniform", "sigma": 0.0},
        "training": how,
        "history": {"every": 2000, "points_per_decade": 1},
        "references": {"W_V": "theorem-2"},
    }
    chosen = make_recipe(tables, folder=tmp_path)
    record = train(chosen, references=resolve(chosen)[1])
    second = (np.ones((3, 3)) + np.eye(3)) / 12  # two of three topics, half each
    assert record.final.loss[0] == pytest.approx(1 - np.trace(PHI.T @ second @ PHI), abs=1e-6)
    assert record.final.W_V_distance[0] < 0.01 * np.linalg.norm(record.weights["W_V"][0])
    W = record.weights["W_V"][0]
    members = [{0}, {0, 2}, {0, 1}, {1}, {2}, {2}]
    pairs = [W[i + 1, j + 1] for i in range(6) for j in range(6) if i != j and members[i] & members[j]]
    assert record.final.W_V_same[0] == pytest.approx(np.mean(pairs))


def test_smoothing_makes_no_topic() -> None:
    """What LDA leaves: a small probability everywhere, which must not make all words of one topic."""
    model = TopicModel.disjoint(3, 2)
    smoothed = TopicModel.normalised(model.phi + 1e-3, Vocabulary.numbered(6))
    matrix = np.random.default_rng(0).normal(size=(7, 7))
    assert block_means(matrix, smoothed) == block_means(matrix, model)
    assert (smoothed.phi > 0).all()
    np.testing.assert_array_equal(TopicModel.normalised(PHI, Vocabulary.numbered(6)).members, PHI > 0)
    never = TopicModel.normalised(np.array([[1.0, 0, 0], [0, 1, 0]]), Vocabulary.numbered(3))
    assert not never.members[:, 2].any()


@pytest.mark.parametrize("how", ["file", "handed in"])
def test_other_topics_on_resumption_are_refused(tmp_path, how) -> None:
    def begin(phi):
        np.save(tmp_path / "phi.npy", phi)
        own = TopicModel.normalised(phi, Vocabulary.numbered(6))
        data = {"length": 12} | ({"phi": "phi.npy"} if how == "file" else {})
        return recipe(data, tmp_path), {} if how == "file" else {"topic_model": own}

    chosen, given = begin(PHI)
    whole = train(chosen, **given)
    stopped_run(chosen, tmp_path / "run", 40, **given)
    stopped_run(chosen, tmp_path / "other", 40, **given)
    same_weights(whole, train(chosen, out=tmp_path / "run", resume=True, **given))
    chosen, given = begin(PHI[::-1].copy())
    for folder in ("run", "other"):
        with pytest.raises(InputError, match="another one"):
            train(chosen, out=tmp_path / folder, resume=True, **given)


def test_a_recipe_moves_with_its_files(tmp_path) -> None:
    write_recipe(tmp_path / "here", 'phi = "phi.csv"')
    (tmp_path / "here" / "phi.csv").write_text(CSV)
    stopped_run(load_recipe(tmp_path / "here" / "r.toml", ["training.checkpoint_every=10"]), tmp_path / "run", 20)
    shutil.move(tmp_path / "here", tmp_path / "there")
    moved = load_recipe(tmp_path / "there" / "r.toml", ["training.checkpoint_every=10"])
    assert train(moved, out=tmp_path / "run", resume=True).summary["steps"] == 30


FAULTS = {
    "sum to 1": "0.5,0.4\n0,1",
    "negative": "1.5,-0.5\n0,1",
    "a cell is not a number": "1,0\n0,one",
    "twice": "a,a\n1,0\n0,1",
    "without topics": "",
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_file_that_is_no_phi_is_refused(tmp_path, message) -> None:
    (tmp_path / "phi.csv").write_text(FAULTS[message])
    with pytest.raises(InputError, match=message) as caught:
        train(recipe({"phi": "phi.csv"}, tmp_path))
    assert "phi.csv" in str(caught.value.where)


def test_what_excludes_itself_is_refused(tmp_path) -> None:
    np.save(tmp_path / "phi.npy", PHI)
    np.save(tmp_path / "objects.npy", PHI.astype(object), allow_pickle=True)
    with pytest.raises(InputError, match="plain array"):
        train(recipe({"phi": "objects.npy"}, tmp_path))
    with pytest.raises(InputError, match=r"data\.phi names is not there"):
        train(recipe({"phi": "none.npy"}, tmp_path))
    with pytest.raises(InputError, match="leave them out"):
        recipe({"phi": "phi.npy", "num_topics": 3})
    with pytest.raises(InputError, match="alpha"):
        train(recipe({"phi": "phi.npy", "alpha": [0.1, 0.2]}, tmp_path))
    with pytest.raises(InputError, match="handed in"):
        train(recipe({"phi": "phi.npy"}, tmp_path), topic_model=TopicModel.disjoint(2, 2))
    with pytest.raises(InputError, match="topics_per_document"):
        train(recipe({"topics_per_document": 3}), topic_model=TopicModel.disjoint(2, 2))


@pytest.mark.parametrize(
    ("parameter", "form"), [("W_V", "finite-n"), ("W_V", "diagonal"), ("b_pred", "theorem-1"), ("W_V", "theorem-2")]
)
def test_closed_forms_that_do_not_hold_for_a_phi_are_refused(tmp_path, parameter, form) -> None:
    dependent = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.25, 0.5, 0.25]])
    np.save(tmp_path / "phi.npy", dependent)
    own = recipe({"phi": "phi.npy", "topics_per_document": 2, "length": 9}, tmp_path)
    with pytest.raises(InputError, match=f"no closed form {form}"):
        resolve(own.model_copy(update={"references": {parameter: form}}))
