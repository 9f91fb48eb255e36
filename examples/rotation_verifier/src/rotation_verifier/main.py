from rotation_verifier.crew import RotationVerifier


def run() -> None:
    """Runs the crew without a server: `crewai run`."""
    print(RotationVerifier().crew().kickoff().raw)
