package tier

const childEnv = "REWIND_TIER_TEST_CHILD"

func runChild() {}
