"""`python -m proxy` is `tailfold`."""

from proxy.cli import main

if __name__ == "__main__":
    main(prog_name="tailfold")
