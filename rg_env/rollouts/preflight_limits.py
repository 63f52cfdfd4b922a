"""What `rg-env preflight` asks, and from where on it sounds an alarm: every threshold, with its reason."""

# -- how much is asked
QUESTIONS = 8
"""Questions of each task at least. With 8 samples each, a rate of 1% is seen in one of two tries."""
MOST_QUESTIONS = 32
"""Questions of each task at most: more narrow the intervals by little, and cost the same again."""
MODEL_SECONDS = 120.0
"""Seconds of the model's time that the questions may take, beyond the least number of them."""
LONGER = (8, 4, 2)
"""Multiples of the length limit with which cut-off responses are asked for again; the first that the model has room
for. One long ask costs less than several that double: a response that ends early costs only its own length."""
LEVEL_QUESTIONS, LEVEL_SAMPLES = 8, 2
"""Questions and samples at each level. More questions say more than more samples; 16 responses tell 20% from 80%."""
TRIED_ANSWERS = 4
"""Items of each task whose own answers, and those of their neighbors, the scorer must get right."""

# -- what is an alarm
RIGHT_UNREWARDED = 0.05
"""Share of well-formed responses that are literally correct and not rewarded. A sound scorer has none; single rows of a
file may be wrong."""
HARDLY_WELL_FORMED = 0.01
"""Share of well-formed responses below which a format is not learned: of 16 groups of 8, one response has it."""
FEW_SIGNALS = 0.1
"""Share of groups with different rewards below which nine of ten responses are generated for nothing."""

# -- what is said
WORTH_SAYING = 0.05
"""A setting is named if it rewards at least this share more of the responses; less is chance."""
CUT_OFF = 0.05
"""Share of cut-off responses above which a length is looked for that cuts off fewer."""
TOO_HARD, TOO_EASY = 0.2, 0.8
"""Solve rates between which a group of 8 nearly always has right and wrong responses (83% to 99.6%)."""

# -- during a run
FIRST_STEPS = 20
"""Steps after which a dead reward is said: a format that is learned at all shows within a few."""
DEAD_FORMAT, DEAD_CUT_OFF = 0.1, 1.0
"""Share of well-formed responses below which, and of cut-off ones from which, the reward is dead."""
