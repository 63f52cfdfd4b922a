"""Everything that imports SkyRL: configuration, environment, generator, trainers, and the hooks that join them."""
