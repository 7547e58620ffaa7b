"""Networks: building them by name, reading a layer on the way, and the momentum teacher."""
