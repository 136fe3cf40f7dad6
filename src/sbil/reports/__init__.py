"""Results for people: sentences, tables, figures and HTML pages."""
