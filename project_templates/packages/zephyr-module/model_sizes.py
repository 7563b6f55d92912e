{% include "shared/model_sizes.py" %}
