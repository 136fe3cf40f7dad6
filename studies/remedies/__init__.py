"""The study of EDM's remedies: what is run (study), its stored runs (stored), and its tables and figures.

python -m studies.remedies run --out runs/     run the study; finished cells are not run again
python -m studies.remedies take runs/          copy the cells into results/remedies/
python -m studies.remedies take runs/ --cpu    the same for cells that were run on a CPU; they stay apart
"""
