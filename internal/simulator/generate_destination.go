package simulator

import (
	"fmt"
	"math/rand/v2"
)

// The adversary at the destination: what befalls copies and the records of mirrors, and lives that begin in a way that chance seldom finds.

// destination draws which of these kinds are on, and in some seeds how the run begins.
func (a *adversary) destination(rng *rand.Rand) {
	rare := func(odds int, op func() string) {
		if rng.IntN(odds) == 0 {
			a.add(1+rng.IntN(4), op)
		}
	}
	rare(8, func() string { return "take " + a.copy() })
	rare(6, func() string { return "shorten " + a.copy() })
	rare(5, func() string { return "unmake " + a.mirror() })
	rare(8, func() string { return fmt.Sprintf("offload %s to=%d", a.pick(a.copy(), a.log()), a.rng.IntN(20)) })
	rare(6, func() string { return fmt.Sprintf("store %s refuse n=%d", a.cluster(), 1+a.rng.IntN(3)) })
	rare(6, func() string {
		return fmt.Sprintf("crash %s keep=%d%s", a.mirror(), a.rng.IntN(3), a.pick(" back", " short=1", " short=2", " short=3 back"))
	})
	if len(a.plan) < 3 && rng.IntN(3) == 0 {
		a.tell(a.begins(rng)...)
	}
}

// copy is a log that a mirror has.
func (a *adversary) copy() string {
	for _, m := range a.w.mirrors {
		if p := m.newest(); m.member && p != nil && len(p.runners) > 0 && a.rng.IntN(4) > 0 {
			if r := p.runners[a.rng.IntN(len(p.runners))]; !r.l.open {
				return fmt.Sprintf("%s orders-%d", r.l.at.Cluster, r.l.at.Partition)
			}
		}
	}
	return a.log()
}

// begins are ops that lead to where something rare can happen, and often let it happen.
func (a *adversary) begins(rng *rand.Rand) []string {
	p := rng.IntN(int(a.w.cfg.Partitions))
	at := func(format string, more ...any) string {
		return fmt.Sprintf(format, append([]any{p}, more...)...)
	}
	n := func(most int) int { return 1 + rng.IntN(most) }
	produce := func(c string) string { return fmt.Sprintf("produce %s orders-%d n=%d", c, p, n(4)) }
	either := func(list ...string) string { return list[rng.IntN(len(list))] }
	wait := func() string { return fmt.Sprintf("run %dms", n(1500)) }
	steps := func() string { return fmt.Sprintf("step %d", n(25)) }
	mirrors := []string{produce("A"), "start a-to-b", "until a-to-b MIRRORING", produce("A"), "run 500ms"}
	then := func(ops ...string) []string { return append(mirrors[:len(mirrors):len(mirrors)], ops...) }
	over := func(ops ...string) []string {
		return append(then("stop a-to-b", "until a-to-b STOPPED"), ops...)
	}
	stops := []string{"stop a-to-b", "until a-to-b STOPPED"}
	back := []string{"start b-to-a", at("until b-to-a FAILED %d by=5s"), at("consent b-to-a %d"), "until b-to-a MIRRORING by=10s"}
	join := func(lists ...[]string) (all []string) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	switch rng.IntN(26) {
	case 0: // somebody takes the copy, clients write it, and it is stopped
		lags := either(at("lag B orders-%d n=2"), "step 1")
		return join(then(lags, produce("A"), wait(), at("take B orders-%d"), either(produce("B"), "step 1"), either(produce("A"), "step 1"), either(wait(), "step 1")), stops, []string{produce("B")}, back)
	case 1: // a mirror is deleted and made again
		return over(either(produce("B"), "step 1"), "unmake a-to-b", either("run 20ms", produce("A")), either("crash a-to-b", "step 1"), "launch a-to-b", "start a-to-b",
			at("until a-to-b FAILED %d by=4s"), at("consent a-to-b %d"), "until a-to-b MIRRORING by=10s", "stop a-to-b", either(steps(), "until a-to-b STOPPED"))
	case 2: // the epoch of the last mirror's end is lost where it came from
		return join([]string{produce("A"), "start a-to-b", "until a-to-b MIRRORING", at("lag A orders-%d"), at("shrink A orders-%d"), "run 200ms", at("elect A orders-%d"), at("shrink A orders-%d"), produce("A"), "run 700ms",
			"network a-to-b cut", at("elect A orders-%d unclean")}, stops, []string{"network a-to-b heal", either(produce("B"), "step 1")}, back)
	case 3: // a stopped log comes back with less than it had, or under an old leader epoch
		return over(either("step 1", produce("B")), fmt.Sprintf("crash a-to-b%s", either(" back", fmt.Sprintf(" short=%d", n(3)), " short=1 back")), "launch a-to-b", "run 2s")
	case 4: // it is lost while the stop runs
		return then("stop a-to-b", fmt.Sprintf("step %d", 15+rng.IntN(60)), fmt.Sprintf("crash a-to-b short=%d", n(3)), "launch a-to-b", wait())
	case 5, 17, 18, 19: // the gate is closed by a call that is said to have failed, and the source is another one
		return over("run 300ms", "fault b-to-a CloseForWrites after", "fault b-to-a CloseForWrites after", "start b-to-a", at("until b-to-a FAILED %d by=6s"), at("doubt b-to-a %d for-good"), "run 2s")
	case 6: // retention takes the beginning of a transaction that is open
		return []string{"begin A T1", at("send T1 orders-%d n=2"), produce("A"), at("send T1 orders-%d n=2"), "start a-to-b", "until a-to-b MIRRORING", "run 300ms", fmt.Sprintf("trim A orders-%d to=%d", p, 2+rng.IntN(2)),
			produce("A"), "run 1s", either("run 11s", "step 1"), "stop a-to-b", "until a-to-b STOPPED"}
	case 7: // the source's log starts above what is replicated here
		return then(at("lag B orders-%d n=2"), produce("A"), "run 500ms", at("trim A orders-%d to=1000"), produce("A"), "run 3s", either("run 10s", "step 1"))
	case 8: // one transaction after the other is closed while another one stays open
		return then("begin A T1", "begin A T2", at("send T1 orders-%d"), at("send T2 orders-%d"), wait(), "commit T1", produce("A"), "run 1s", at("send T2 orders-%d"), "run 400ms", "begin A T3", at("send T3 orders-%d"), "commit T2", "run 1s")
	case 9: // the source loses its end while replicas of the copy are away
		return then(at("lag A orders-%d"), at("shrink A orders-%d"), produce("A"), "run 500ms", fmt.Sprintf("lag B orders-%d n=%d", p, n(2)), at("shrink B orders-%d"), at("elect A orders-%d unclean"), produce("A"), "run 2s",
			"run 5s", at("catch-up B orders-%d"), wait())
	case 10: // the old cluster comes back while one of its replicas is away
		return join(then("network a-to-b cut", produce("A")), stops, []string{"network a-to-b heal", fmt.Sprintf("lag A orders-%d n=%d", p, n(2)), at("shrink A orders-%d")}, back, []string{"run 4s", at("catch-up A orders-%d")})
	case 11, 12: // records are deleted at the source before they are copied
		policy := either("keep", "keep", "fail", "fail", "restart")
		return join([]string{"tune a-to-b loss=" + policy}, then("network a-to-b cut", produce("A"), produce("A"), at("trim A orders-%d to=1000"), produce("A"), "network a-to-b heal", "run 15s", produce("A"), wait(),
			at("trim A orders-%d to=1000"), produce("A"), "run 12s"))
	case 13: // the copy's end is lost beside the process, and then it is stopped
		return join(then("begin A T1", at("send T1 orders-%d"), at("lag B orders-%d n=2"), at("elect A orders-%d"), either(produce("A"), at("send T1 orders-%d")), "run 600ms", either("pause a-to-b", "step 1"), at("shorten B orders-%d")), stops)
	case 14: // the source's topic is found to be deleted while a stop runs
		return then("store B slow by=40ms", at("slow B orders-%d by=30ms"), "stop a-to-b", fmt.Sprintf("step %d", n(40)), at("doubt a-to-b %d for-good"), "run 3s")
	case 15: // what is copied comes out of the source's remote storage
		return join([]string{produce("A"), produce("A"), produce("A"), at("offload A orders-%d to=1000"), "start a-to-b", "until a-to-b MIRRORING", wait(), either("run 2s", "step 1")}, stops)
	case 20, 21: // the call that starts a copy anew, after a loss, is done and said to have failed
		return join(then("network a-to-b cut", produce("A"), produce("A"), at("trim A orders-%d to=1000"), produce("A"), "fault a-to-b Reset after", "network a-to-b heal", "run 15s", produce("A"), wait()))
	case 22, 23: // compaction takes the source's last records before they are copied, and then it is stopped
		return join(then("network a-to-b cut", produce("A"), at("lag A orders-%d"), produce("A"), at("compact A orders-%d"), "network a-to-b heal", "run 12s"), stops)
	case 24, 25: // a start that has closed the clients' log fails before its cut, and is stopped
		return over(at("lag A orders-%d"), produce("A"), "run 100ms", "start b-to-a", at("until b-to-a FAILED %d by=6s"), at("consent b-to-a %d"), "run 3500ms", "stop b-to-a", "until b-to-a STOPPED", at("catch-up A orders-%d"), "start a-to-b", "run 2s")
	default: // a part of the copy is in remote storage
		return join(then("network a-to-b cut", produce("A")), stops, []string{"network a-to-b heal", produce("B"), fmt.Sprintf("offload A orders-%d to=%d", p, n(12))}, back)
	}
}
