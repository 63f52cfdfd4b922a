"""What every other part stands on: files, errors, output, processes, words. It knows nothing of tasks or dumps."""
