"""The programs that made our published results and pages. They are not part of the wheel.

Run them from the repository root, for instance `python -m studies.publish --check`:

    architecture draw the rooms of the package and their imports
    publish      write every published table and figure from the runs in results/, or check them
    collect      copy finished cells into results/
    remedies     run the study of EDM's remedies, and copy its runs into results/remedies/
    choosing     compare ways of choosing a policy without an environment (docs/choosing.md)
    imagined     train on imagined states, with a learned and with the true model of the dynamics
    icu_sepsis   imitate clinicians in ICU-Sepsis: matched decisions and survival (docs/exact_edm.md)
    rounding     measure what the rounding of a GPU does to a demonstrator
    landscape    draw the energies that EDM learns
    successors   measure how far the states after kept steps lie from the kept ones
    returns      measure random policies and the demonstrators that ship
    train_sb3    train the demonstrators of CartPole and Acrobot
    train_ppo    train the demonstrators of LunarLander and BeamRider
"""
