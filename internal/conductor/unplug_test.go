package conductor_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// deeds are the actions of a history. Each is one letter.
var actions = []struct {
	letter byte
	about  string
	do     func(*unplugged)
}{
	{'k', "a CPU of the owner goes offline", (*unplugged).offOne},
	{'K', "all CPUs of the owner go offline", (*unplugged).offAll},
	{'o', "all CPUs are online", (*unplugged).on},
	{'r', "the agent is restarted", func(u *unplugged) { u.restart(true) }},
	{'d', "the agent is restarted, its state directory deleted", func(u *unplugged) { u.restart(false) }},
	{'w', "all CPUs come online while no agent is there", func(u *unplugged) { u.onMeanwhile(true) }},
	{'x', "the same, and the state directory is deleted", func(u *unplugged) { u.onMeanwhile(false) }},
	{'t', "the runtime is restarted and tells everything anew", (*unplugged).resync},
	{'c', "the owner's container ends and is created anew", (*unplugged).recreate},
	{'+', "the owner asks for a CPU more", func(u *unplugged) { u.resize(1) }},
	{'-', "the owner asks for a CPU less", func(u *unplugged) { u.resize(-1) }},
	{'n', "another owner, and one of the reclaimed pool, come", (*unplugged).another},
}

// TestHotplugHistories plays histories of CPU hotplug combined with restarts, resizes and creations,
// on both cgroup versions and for every kind of owner. A history is a sequence of letters, one
// per action of deeds. make test plays a part of them, make soak all up to a length.
//
// After each step no other container has an owner's CPUs, no container has none, every CPU can
// be used, and an owner with too few CPUs is reported. At the end, with all CPUs online, the
// result is that of the same history without hotplug.
func TestHotplugHistories(t *testing.T) {
	t.Parallel()
	length, stride := 4, 307
	if os.Getenv("TRIMTAB_SOAK") != "" {
		stride = 1
	}
	if n, err := strconv.Atoi(os.Getenv("TRIMTAB_STRIDE")); err == nil { // a different part of the longer ones in each run
		length, stride = 5, n
	}
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for _, kind := range ownerKinds {
			t.Run(v.String()+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				tried, failed := 0, 0
				for i := range histories(length) {
					if i%stride != 0 {
						continue
					}
					if h := history(i); isDistinct(h) && (!kind.untold || v != cgroup.V1 || !refused(h)) {
						tried++
						if !playHotplugHistory(t, v, kind, h) {
							failed++
						}
					}
					if failed == mostFailed { // a failed subtest may hide others
						break
					}
				}
				t.Logf("%d histories", tried)
			})
		}
	}
}

// mostFailed is the number of failed histories after which the test stops.
const mostFailed = 5

// histories returns the number of histories up to a length.
func histories(length int) int {
	n, all := 1, 0
	for range length {
		n *= len(actions)
		all += n
	}
	return all
}

// history returns the history with a number, the short ones first.
func history(i int) string {
	n, length := len(actions), 1
	for ; i >= n; n *= len(actions) {
		i -= n
		length++
	}
	letters := make([]byte, length)
	for at := range letters {
		letters[at] = actions[i%len(actions)].letter
		i /= len(actions)
	}
	return string(letters)
}

// isDistinct reports whether a history differs in effect from a shorter one.
func isDistinct(h string) bool {
	if strings.Contains(h, "oo") || strings.HasPrefix(h, "o") || strings.HasSuffix(h, "o") || strings.Contains(h, "kK") || strings.Contains(h, "KK") {
		return false // at the end all are online anyway
	}
	return strings.Count(h, "n") < 3
}

// refused reports whether the kernel of version 1 refuses a quota during the history. If no
// runtime reports that a pod's sum grew, the pod keeps its old quota when it owns nothing, and
// no container's quota may be larger. That is reported, and not tested here.
func refused(h string) bool { return strings.Contains(h, "+") && strings.Contains(h, "K") }

// playHotplugHistory plays one history, with copies that are updated at once and with copies that
// are not, and reports whether all checks held.
func playHotplugHistory(t *testing.T, v cgroup.Version, kind ownerKind, h string) bool {
	t.Helper()
	held := true
	for _, follow := range []bool{false, true} {
		u := newUnplugged(t, v, kind)
		u.follow = follow
		u.play(h)
		held = held && len(u.mo.broken) == 0
		for _, b := range u.mo.broken {
			t.Errorf("%s/%s, history %q, copies follow: %t: %s", v, kind.name, h, follow, b)
		}
	}
	return held
}

// TestHotplugFound plays histories that once failed, and the one in TRIMTAB_HISTORY.
func TestHotplugFound(t *testing.T) {
	t.Parallel()
	found := []string{"kr", "krod", "K", "Kr", "kK", "KcnK", "K+r", "-kd", "-dKk", "-Kod", "K-dk", "dk-d", "+kd", "k+kd", "kcr", "Kcd", "kw", "Kw", "kx", "+kw", "kcw", "+KxK", "K+ctx", "kc+x", "r+cKr", "kxkd", "-k+d", "kxKd", "-K+d", "+Kod", "kckd", "kcKd", "Kc+od", "-K+nx"}
	if h := os.Getenv("TRIMTAB_HISTORY"); h != "" {
		found = []string{h}
	}
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for _, kind := range ownerKinds {
			t.Run(fmt.Sprintf("%s/%s", v, kind.name), func(t *testing.T) {
				t.Parallel()
				for _, h := range found {
					playHotplugHistory(t, v, kind, h)
				}
			})
		}
	}
}
