"""Your own photos: train on a folder of class folders, and classify a new photo.

A frozen encoder with ImageNet weights computes features once, and an adapter learns from them. Without a folder, crops
of the two photos that scikit-learn carries stand in for yours.

pip install '.[all]'
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

import sincere


def stand_in(folder: Path) -> Path:
    """Write 24 crops each of a temple and a flower as class folders, and return another crop of the flower."""
    random = np.random.default_rng(0)
    for name, photo in zip(("temple", "flower"), load_sample_images().images, strict=True):
        (folder / name).mkdir(parents=True)
        for number in range(24):
            top, left = random.integers(0, 427 - 200), random.integers(0, 640 - 200)
            Image.fromarray(photo[top : top + 200, left : left + 200]).save(folder / name / f"{number}.jpg")
    new = folder.parent / "new.jpg"
    Image.fromarray(photo[100:300, 250:450]).save(new)
    return new


def main(folder: Path, new: Path, out: Path) -> None:
    """Train on a folder and classify a photo."""
    run = sincere.train(data=folder, out=out, epochs=20, quiet=True)
    print(f"1-NN accuracy on held-out photos: {run.knn1_test:.3f}")
    model = run.model()  # later: sincere.load("runs/photos-sincere-0")
    shares = dict(zip(model.class_names, model.predict_proba(new)[0].tolist(), strict=True))
    print(f"{new.name}: {model.predict(new)[0]} ({', '.join(f'{name} {share:.2f}' for name, share in shares.items())})")
    nearest = model.nearest(new, k=3)
    print("most similar training photos:", ", ".join(nearest.names[0]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        if len(sys.argv) == 3:
            main(Path(sys.argv[1]), Path(sys.argv[2]), Path("runs/photos"))
        else:
            main(Path(work) / "photos", stand_in(Path(work) / "photos"), Path(work) / "run")
