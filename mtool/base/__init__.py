"""What all packages of mtool use: errors, files, locks, processes, caches, configuration, identifiers, file trees."""
