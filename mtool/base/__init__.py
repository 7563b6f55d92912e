"""What all rooms need: errors, files, locks, processes, caches, configuration, identifiers, file trees."""
