"""Train a small vision transformer on handwritten digits with the Hugging Face Trainer and SINCERE.

pip install '.[transformers]' scikit-learn

The model has random weights and learns in about a hundred steps; the loss is one argument of the Trainer.
"""

from tempfile import TemporaryDirectory

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from transformers import Trainer, TrainingArguments, ViTConfig, ViTModel, set_seed
from transformers.modeling_outputs import BaseModelOutputWithPooling

from sincere.integrations.transformers import contrastive_loss_func


def mean_of_patches(outputs: BaseModelOutputWithPooling) -> Tensor:
    """Return the embeddings (n, d); a field such as "pooler_output" could be given by its name."""
    return outputs.last_hidden_state.mean(dim=1)


@torch.no_grad()
def report(moment: str, model: ViTModel) -> None:
    """Print the 5-NN accuracy of the test images among the training images, by cosine similarity."""
    model.eval()
    embeddings, queries = (mean_of_patches(model(pixels)).numpy() for pixels in (train_images, test_images))
    knn = KNeighborsClassifier(5, metric="cosine").fit(embeddings, train_labels)
    print(f"{moment}: 5-NN accuracy {knn.score(queries, test_labels):.1%}")


set_seed(0)
images, labels = load_digits(return_X_y=True)
images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
train_images, test_images, train_labels, test_labels = train_test_split(images, labels, test_size=0.3, random_state=0)
# A column named "label" reaches the loss; the Trainer drops columns that neither the model nor its collator knows.
dataset = [{"pixel_values": x, "label": int(y)} for x, y in zip(train_images, train_labels, strict=True)]

config = ViTConfig(
    image_size=8,
    patch_size=2,
    num_channels=1,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
)
model = ViTModel(config, add_pooling_layer=False)
report("before", model)

with TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=10,
        per_device_train_batch_size=128,
        learning_rate=2e-3,
        warmup_steps=10,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    loss_func = contrastive_loss_func("sincere", temperature=0.1, embedding=mean_of_patches)
    Trainer(model, arguments, train_dataset=dataset, compute_loss_func=loss_func).train()
report("after", model)
