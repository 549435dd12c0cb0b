"""Pictures before a training: what cannot be read is refused by name, the others are looked at."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glassformer.checkpoints.files import read_json
from glassformer.cli.app import main
from glassformer.config import read_toml
from glassformer.data.dataset import Dataset
from glassformer.data.duplicates import Thumbnails, near_duplicates
from glassformer.data.findings import Finding
from glassformer.data.image import check_readable, read_header, read_headers
from glassformer.data.image_doctor import examine_images
from glassformer.data.image_sources import ImageSplit, load_image_dataset
from glassformer.data.transform import ImageTransform
from glassformer.errors import DataError
from glassformer.tasks.run import evaluate_task

from .conftest import SETTINGS, encoded, fill, sets


def scene(seed: int, width: int = 61, height: int = 47) -> Image.Image:
    """Smooth colors, so that it looks the same after a change of size."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """train/ and test/ with four classes of small pictures."""
    for split, count, seed in (("train", 32, 3), ("test", 12, 5)):
        fill(tmp_path / "corners" / split, count, seed, "{}.jpg")
    return tmp_path / "corners"


@pytest.fixture
def train(folder: Path, tmp_path: Path, capsys):
    """``train(*more)``: the exit code of a training on ``folder``, and what it printed."""

    def run(*more: str) -> tuple[int, str]:
        command = ["train", "--images", str(folder), "--out", str(tmp_path / "run")]
        code = main([*command, *sets(**SETTINGS | {"epochs": 2, "bootstrap": 20}), *more])
        return code, "".join(capsys.readouterr())

    return run


SKIP = "--on-bad-row", "skip"


def found_in(splits: dict[str, ImageSplit], **options) -> dict[str, Finding]:
    """The doctor's findings by their codes."""
    return {f.code: f for f in examine_images(Dataset("x", splits), **options).findings}


def cut(file: Path) -> Path:
    file.write_bytes(file.read_bytes()[:-40])
    return file


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"])
def test_a_cut_file_is_found_without_decoding_whole_ones(kind):
    whole = encoded(scene(1), kind)
    assert read_header(whole, "x").size == (61, 47)
    assert read_headers([whole, whole[: len(whole) * 2 // 3], whole], "x")[1].keys() == {1}


def test_a_whole_file_is_not_decoded(monkeypatch):
    whole = encoded(scene(1), "JPEG"), encoded(scene(2))
    monkeypatch.setattr("glassformer.data.image.open_image", lambda *a: pytest.fail("decoded"))
    assert read_headers(whole, "x")[1] == {}


def test_all_that_cannot_be_read_is_counted():
    train = ImageSplit([encoded(scene(1)), b"text"], [0, 1], "t")
    said = r"t\[1\]: is not an image.*1 of train, 3 of test.*or leave .*--set broken=skip"
    with pytest.raises(DataError, match=said):
        check_readable({"train": train, "test": ImageSplit([b""] * 3, None, "u")})


def test_a_cut_picture_of_test_is_found_before_the_training(folder, tmp_path, train):
    bad = cut(next((folder / "test" / "left").iterdir()))
    code, said = train()
    assert code == 2
    assert str(bad) in said
    assert "--on-bad-row skip" in said
    assert not (tmp_path / "run").exists()
    code, said = train(*SKIP)
    assert code == 0
    assert "1 image of test left out" in said


def test_a_run_is_judged_on_what_can_be_read_and_again_without_training(folder, tmp_path, train, capsys):
    run, bad = tmp_path / "run", next((folder / "test" / "left").iterdir())
    assert train()[0] == 0
    weights, whole = (run / "model" / "model.safetensors").read_bytes(), read_json(run / "metrics.json")
    cut(bad)
    assert main(["evaluate", str(run)]) == 2
    err = capsys.readouterr().err
    assert str(bad) in err
    assert "--on-bad-row skip" in err
    assert main(["evaluate", str(run), *SKIP]) == 0
    assert f"1 image of test left out: {bad}" in capsys.readouterr().out
    found = evaluate_task(run, on_bad_row="skip")
    assert found["n"] == whole["test"]["n"] - 1
    assert str(bad) in found["left_out"][0]
    (run / "metrics.json").unlink()  # as if judging had failed on it
    code, said = train("--resume")
    assert (code, "--on-bad-row skip" in said) == (2, True)
    code, said = train("--resume", *SKIP)
    assert (code, "1 image of test left out" in said) == (0, True)
    assert read_json(run / "metrics.json")["test"]["n"] == whole["test"]["n"] - 1
    assert (run / "model" / "model.safetensors").read_bytes() == weights
    assert read_toml(run / "config.toml")["data"]["broken"] == "refuse"  # as it was split


@pytest.mark.parametrize("number", [False, True])
def test_a_picture_lost_while_training_does_not_take_the_figures_along(
    folder, tmp_path, train, number, monkeypatch
):
    lost, more = [], []
    if number:
        files = sorted(folder.rglob("*.jpg"))
        rows = [f"{file},{1e6 if i == 3 else 1 + i / 43}" for i, file in enumerate(files)]
        (tmp_path / "t.csv").write_text("\n".join(["image,score", *rows]) + "\n")
        settings = sets(target="number", far_numbers="skip", test_size=12, validation_size=10, split_seed=1)
        more = ["--images", str(tmp_path / "t.csv"), "--model", "vit-tiny", *settings]

    def look(splits, image_range):
        lost.append(cut(Path(splits["test"].images[0])))  # whole when it was looked at

    monkeypatch.setattr("glassformer.inputs.images.check_readable", look)
    code, said = train(*more)
    assert code == 0, said
    assert "1 image of test left out" in said
    for line in ("far from all others and left out: 1 of", "of the true numbers inside, width"):
        assert (line in said) == number
    metrics = read_json(tmp_path / "run" / "metrics.json")
    assert metrics["test"]["n"] == 11
    assert str(lost[0]) in metrics["left_out"][0]


# --- the doctor -------------------------------------------------------------------------------


def messy(tmp_path: Path) -> Path:
    """A folder with a fault of every kind."""
    home = tmp_path / "messy"
    for label in ("cat", "dog"):
        (home / label).mkdir(parents=True)
        for i in range(9):
            scene(i + 100 * (label == "dog")).save(home / label / f"{i}.png")
    cat, dog = home / "cat", home / "dog"
    (cat / "text.jpg").write_text("no picture")
    (cat / "cut.jpg").write_bytes(encoded(scene(1), "JPEG")[:-200])
    (cat / "empty.png").write_bytes(b"")
    scene(31).convert("L").save(cat / "grey.png")
    scene(32).convert("CMYK").save(cat / "print.jpg")
    scene(33).convert("RGBA").save(dog / "clear.png")
    scene(34).save(dog / "moving.gif", save_all=True, append_images=[scene(35)])
    Image.new("1", (7001, 7001)).save(dog / "huge.png")
    (dog / "same.png").write_bytes((dog / "0.png").read_bytes())
    (dog / "torn.png").write_bytes((cat / "0.png").read_bytes())
    scene(1, 122, 94).save(cat / "again.jpg", quality=80)  # 1.png twice as large
    scene(40, 400, 50).save(cat / "wide.png")
    return home


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    dataset = load_image_dataset(messy(tmp_path_factory.mktemp("doctor")))
    return examine_images(Dataset("messy", dataset.splits), transform=ImageTransform((32, 32)), decode=True)


@pytest.fixture(scope="module")
def found(report):
    return {f.code: f for f in report.findings}


def test_the_doctor_counts_what_is_refused_and_why(report, found):
    assert (found["unreadable"].severity, found["unreadable"].count) == ("warning", 4)
    for part in ("is not an image", "the image has no bytes", "damaged", "million pixels"):
        assert part in found["unreadable"].message
    assert "--set broken=skip" in found["unreadable"].fix
    assert report.figures["splits"]["train"]["unreadable"] == 4


def test_the_doctor_sees_sizes_modes_and_what_becomes_of_them(report, found):
    assert "images of 61 x 47 to 400 x 94 pixels" in found["sizes"].message
    assert "1 CMYK (converted to RGB)" in found["modes"].message
    assert "1 RGBA (transparency shows white)" in found["modes"].message
    assert "1 L (gray" in found["modes"].message
    assert "first is read" in found["animations"].message
    assert "stretched more than 1.5 times" in found["stretched"].message
    assert "8.0 times at most" in found["stretched"].message
    assert report.figures["splits"]["train"]["width"] == [61, 61, 400]


def test_the_doctor_sees_repeats_contradictions_and_near_repeats(found):
    counts = {"repeats": 2, "contradictions": 1, "near-repeats": 1}
    assert {code: found[code].count for code in counts} == counts
    assert "(cat) = " in found["contradictions"].examples[0]
    assert "(dog)" in found["contradictions"].examples[0]
    assert {Path(x).name for x in found["near-repeats"].examples[0].split(" ~ ")} == {"1.png", "again.jpg"}


def test_a_cut_takes_away_what_the_doctor_says():
    wide = {"train": ImageSplit([np.zeros((40, 80, 3), np.uint8)] * 3, [0, 1, 1], "x")}
    said = found_in(wide, transform=ImageTransform((20, 20), "crop"))["cut-away"].message
    assert "removes 50% of an image (median; 50% at most), and more than 25% of 3 of 3 images" in said
    said = found_in(wide, transform=ImageTransform((200, 200)))["blown-up"].message
    assert "3 of 3 are smaller than 200 x 200" in said


def test_equal_and_nearly_equal_pictures_in_two_splits_are_a_leak():
    first = ImageSplit([scene(i) for i in range(11)], [0, 1] * 5 + [0], "a")
    others = [scene(i) for i in range(50, 57)]
    second = ImageSplit([scene(7, 90, 70), *others], [1, 0] * 4, "b")
    near = found_in({"train": first, "test": second}, decode=True)
    assert (near["near-leak"].severity, near["near-leak"].count) == ("warning", 1)
    assert near["near-leak"].examples == ("a[7] ~ b[0]",)
    same = found_in({"train": first, "test": ImageSplit([scene(7), *others], [1, 0] * 4, "b")})
    assert {f.code: f.count for f in same.values() if f.severity == "warning"} == {"leak": 1}


def test_pictures_that_are_missing_are_no_copies_of_each_other():
    parts = {
        name: ImageSplit([*[scene(k + i) for i in range(6)], None, ""], [0, 1] * 4, name)
        for name, k in (("train", 0), ("test", 50))
    }
    report = examine_images(Dataset("x", parts))
    found = {f.code: f.severity for f in report.findings}
    assert {code for code, severity in found.items() if severity != "ok"} == {"unreadable"}
    assert report.figures["splits"]["train"]["distinct"] == 6
    assert report.figures["splits"]["train"]["unreadable"] == 2


def test_many_near_repeats_of_one_picture_are_a_leak_too():
    """More than are compared with each other: each with one of either split."""
    rng = np.random.default_rng(0)
    shown = np.asarray(scene(7)).astype(int)
    many = [np.clip(shown + rng.integers(-2, 3, shown.shape), 0, 255).astype(np.uint8) for _ in range(210)]
    parts = {
        name: ImageSplit([*many[k::2], *[scene(20 + 9 * k + i) for i in range(5)]], [0, 1] * 55, name)
        for k, name in enumerate(("train", "test"))
    }
    assert found_in(parts, decode=True)["near-leak"].count > 100


def test_one_near_repeat_among_many_pictures_of_one_hash_is_found():
    """As of pages of text: their hashes say nothing, and pixels tell them apart."""
    rng = np.random.default_rng(0)
    pages = rng.integers(60, 190, (301, 16, 16, 3)).astype(np.uint8)
    pages[300] = pages[57] + 2
    hashes = np.zeros(301, np.uint64)
    train = Thumbnails(np.arange(300), pages[:300], hashes[:300])
    test = Thumbnails(np.arange(1), pages[300:], hashes[300:])
    assert near_duplicates({"train": train, "test": test}) == {("train", "test"): [(57, 0)]}


def test_near_repeats_under_two_labels_contradict_each_other():
    pictures = [*[scene(i) for i in range(11)], scene(3, 90, 70), scene(4, 90, 70)]
    labels = [0, 1] * 5 + [0, 0, 0]  # of scene 3 another label, of scene 4 the same
    found = found_in({"train": ImageSplit(pictures, labels, "a")}, decode=True)
    assert (found["near-repeats"].severity, found["near-repeats"].count) == ("note", 2)
    torn = found["near-contradictions"]
    assert (torn.severity, torn.count, torn.examples) == ("warning", 1, ("a[3] (1) ~ a[11] (0)",))
    assert torn.fix == "keep the correct label of each image"


def test_noise_and_flat_pictures_are_no_repeats():
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, (32, 32, 3), np.uint8) for _ in range(67)]
    flat = [np.full((32, 32, 3), level, np.uint8) for level in range(0, 250, 5)]
    table = Thumbnails.of([*noise, *flat], range(len(noise) + len(flat)))
    assert len(table.positions) == 67
    assert near_duplicates({"train": table}) == {}


def test_one_class_a_class_of_nearly_all_and_one_in_two_spellings():
    twins = ImageSplit([scene(i) for i in range(6)], ["Cat", "cat", "dog"] * 2, "x")
    found = found_in({"train": twins})["twin-classes"]
    assert (found.severity, found.fix) == ("warning", "merge them with --set merge_labels=spelling")
    one = ImageSplit([scene(i) for i in range(5)], ["a"] * 5, "x")
    assert "one class only" in found_in({"train": one})["balance"].message
    most = ImageSplit([scene(i) for i in range(40)], ["a"] * 38 + ["b"] * 2, "x")
    found = found_in({"train": most})["balance"]
    assert found.severity == "warning"
    assert "always predicting a scores 95.0%" in found.message


def test_rows_of_a_table_without_a_label_are_counted_or_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # long paths are cut
    for i in range(6):
        scene(i).save(tmp_path / f"{i}.png")
    rows = [f"{i}.png,{'ab'[i % 2]}" for i in range(4)]
    (tmp_path / "t.csv").write_text("\n".join(["file,label", *rows, "4.png,", "5.png,x,y"]) + "\n")
    with pytest.raises(DataError, match="row 7: 3 fields"):
        load_image_dataset(tmp_path / "t.csv")
    found = load_image_dataset(tmp_path / "t.csv", broken="skip")
    assert found.splits["train"].labels == ["a", "b", "a", "b"]
    assert sorted(row.row for row in found.rejected) == [6, 7]
    assert found.splits["train"].rows == [2, 3, 4, 5]
    assert main(["data", "doctor", "t.csv"]) == 0
    out = capsys.readouterr().out
    assert "t.csv, row 6: the label is missing" in out
    assert "glassformer train --images t.csv --set broken=skip" in out  # once, and as pictures call it


def test_the_command_shows_them(tmp_path, capsys):
    home = messy(tmp_path)
    (home / "dog" / "note.txt").write_text("fetched in May")  # which makes no texts of them
    assert main(["data", "doctor", str(home)]) == 0
    out = capsys.readouterr().out
    assert "unreadable: " in out
    assert "near-repeats: " in out
    last = out.strip().splitlines()[-1]
    assert f"glassformer train --images {home} " in last
    assert "--set broken=skip" in last
    assert "image sizes and cropping were checked for the default model of `train`" in out
    assert "text.jpg" in out
