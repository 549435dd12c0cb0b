"""A study in words: arms that give the same answers, and arms that no simple model is behind."""

from glassformer.study.results import sentences


def test_arms_that_are_right_on_the_same_examples_are_said_to_be():
    def arm(name, **more):
        share = {"mean": 0.714, "difference": 0.0, "difference_interval": [0.0, 0.0]}
        return {"name": name, "accuracy": share, "significant": False, "p_holm": 1.0, **more}

    tests = [{"wins": 0, "losses": 0, "p": 1.0}]
    results = {
        "n": 35,
        "baseline": "encoder-mini",
        "arms": [arm("encoder-mini"), arm("textcnn", mcnemar=tests)],
        "seeds": [0],
        "unfinished": [],
        "baselines": {"TF-IDF": {"accuracy": 0.943}},
    }
    said = sentences(results)
    assert said["sentences"]["textcnn"].startswith(
        "No difference: right on the same examples as encoder-mini"
    )
    assert "No variant reaches TF-IDF (94.3" in said["verdict"]
    results["baselines"] = {"TF-IDF": {"accuracy": 0.7}}
    assert "reaches" not in sentences(results)["verdict"]
