"""The study of tables: `auto` beside what people usually learn tables with."""
