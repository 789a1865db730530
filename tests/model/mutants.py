#!/usr/bin/python3
"""Plants a fault in the step function: mutants.py NAME STEP.C OUT.C

Each fault is a piece of the source and what takes its place; a piece that is no
longer there is an error, so that no mutant is ever the original.
"""
import sys

FAULTS = {
    "lease_ignored": ("cell->age_ms < cell->lease_ms", "false"),
    "fingerprint_ignored": ("if (!same_request(op, &seen))", "if (false)"),
    "lock_forgotten_with_its_lease": ("add_capped(op->policy.lease_ms, op->policy.ttl_ms)", "op->policy.lease_ms"),
    "release_forgets_earlier_attempts": ("return op->attempt <= 1;", "return op != NULL;"),
    "repeated_claim_not_recognised":
        ("seen.state == IDEM_LOCKED && idem_tag_same_owner(&seen.tag, &op->fresh)", "false"),
    "one_tag_for_two_writes": ("	count_up(&op->won);\n	return ask_for_lock(", "	return ask_for_lock("),
    "renewal_keeps_its_tag": ("		op->won = owner;\n		count_up(&op->won);", "		op->won = owner;"),
    "lost_renewal_not_recognised":
        ("result->seen.state == IDEM_LOCKED && idem_tag_same_owner(&seen, &op->owner)", "false"),
    "attempt_not_counted": ("cell->attempt + 1", "cell->attempt"),
    "doubt_is_executed_again": ("	op->found = *cell;\n	if (op->policy.retry_in_doubt)\n		return take_over(op, "
                                "cell, next);\n	return finish(op, IDEM_IN_DOUBT);\n}\n\nstatic bool\nstep_claim",
                                "	op->found = *cell;\n	return take_over(op, cell, next);\n}\n\nstatic bool\n"
                                "step_claim"),
    "give_up_releases": ("	case IDEM_GIVE_UP:\n		next->write.state = IDEM_DOUBT;",
                         "	case IDEM_GIVE_UP:\n		next->write.state = IDEM_ABSENT;"),
    "lost_is_recorded": ("return finish(op, IDEM_LOST);", "return finish(op, IDEM_RECORDED);"),
}


def main():
    name, source, out = sys.argv[1:]
    old, new = FAULTS[name]
    with open(source, encoding="utf-8") as text:
        code = text.read()
    if code.count(old) != 1:
        sys.exit(f"the fault {name} has no place in {source} any more")
    with open(out, "w", encoding="utf-8") as text:
        text.write(code.replace(old, new))


main()
