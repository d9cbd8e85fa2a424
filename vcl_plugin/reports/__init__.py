"""What was found, for people to read: SQL views as tables, evidence pages, pictures, reasons."""
