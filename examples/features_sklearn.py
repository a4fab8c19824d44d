"""Ready-made features in a scikit-learn pipeline: embed, classify, search over losses and temperatures.

pip install '.[all]'
python examples/features_sklearn.py
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sincere import ContrastiveClassifier, ContrastiveEmbedder

torch.set_num_threads(1)
features, labels = load_digits(return_X_y=True)
train, test, train_labels, test_labels = train_test_split(features, labels, train_size=600, random_state=0)

# A transformer: any classifier may follow it.
plain = make_pipeline(StandardScaler(), KNeighborsClassifier(1)).fit(train, train_labels)
print(f"1-NN on the features: {plain.score(test, test_labels):.3f}")
embedder = ContrastiveEmbedder(dim=32, random_state=0)
embedded = make_pipeline(StandardScaler(), embedder, KNeighborsClassifier(1)).fit(train, train_labels)
print(f"1-NN on the embedding: {embedded.score(test, test_labels):.3f}")

# A classifier, with its parameters chosen by cross-validation on the training rows.
pipeline = make_pipeline(StandardScaler(), ContrastiveClassifier(epochs=30, random_state=0))
grid = {
    "contrastiveclassifier__loss": ["sincere", "supcon"],
    "contrastiveclassifier__temperature": [0.1, 0.3],
}
search = GridSearchCV(pipeline, grid, cv=3).fit(train, train_labels)
print(f"best of {len(search.cv_results_['params'])}: {search.best_params_}")
print(f"accuracy on the test rows: {search.score(test, test_labels):.3f}")
