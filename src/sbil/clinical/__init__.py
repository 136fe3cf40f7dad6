"""From the tables of intensive care units to demonstrations, and how well their decisions are matched."""
