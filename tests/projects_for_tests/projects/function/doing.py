import deeds


def run(**inputs):
    """Does what it is asked to do."""
    return deeds.do(inputs)
