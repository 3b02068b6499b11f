def schedule_func(func, target):
    return func
