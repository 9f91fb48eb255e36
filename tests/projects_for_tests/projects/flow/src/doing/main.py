from crewai.flow import Flow, listen, start

from . import deeds


class Doing(Flow):
    _skip_auto_memory = True

    @start()
    def begin(self):
        return dict(self.state)

    @listen(begin)
    def do(self, inputs):
        return deeds.do(inputs)


def kickoff():
    Doing().kickoff()
