"""Supervised contrastive losses. Import them from `sincere`; `sincere.catalog.LOSSES` lists them."""
