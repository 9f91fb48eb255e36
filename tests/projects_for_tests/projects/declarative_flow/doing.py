import deeds


def begin(flow):
    return dict(flow.state)


def do(flow, inputs):
    return deeds.do(inputs)
