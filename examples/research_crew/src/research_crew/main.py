from research_crew.crew import ResearchCrew


def run() -> None:
    """What `crewai run` starts; a server calls the crew with inputs of its own."""
    result = ResearchCrew().crew().kickoff(inputs={"topic": "tides", "audience": "people who are new to sailing"})
    print(result.raw)
