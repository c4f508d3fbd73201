package conductor_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// deeds are what happens to a node with an owner, in every order. Each is one letter of a history.
var deeds = []struct {
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

// TestUnplugged plays every history of CPUs that go and come among restarts, resizes and creations, on both cgroup versions and
// for every kind of owner: a part of them in make test, all in make soak. After each step nobody has an owner's CPUs, nobody has
// none, no CPU is kept from everybody, and an owner that has less than it is due is reported. In the end, with all CPUs online,
// the outcome is that of the same history without CPUs that went.
func TestUnplugged(t *testing.T) {
	t.Parallel()
	length, stride := 4, 307
	if os.Getenv("TRIMTAB_SOAK") != "" {
		stride = 1
	}
	if n, err := strconv.Atoi(os.Getenv("TRIMTAB_STRIDE")); err == nil { // another part of the longer ones
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
					if h := history(i); telling(h) && (!kind.untold || v != cgroup.V1 || !refused(h)) {
						tried++
						if !playUnplugged(t, v, kind, h) {
							failed++
						}
					}
					if failed == mostFailed { // what fails first may not be all there is
						break
					}
				}
				t.Logf("%d histories", tried)
			})
		}
	}
}

// mostFailed is after how many histories that fail the others are not played.
const mostFailed = 5

// histories is how many histories of up to some length there are.
func histories(length int) int {
	n, all := 1, 0
	for range length {
		n *= len(deeds)
		all += n
	}
	return all
}

// history is the one of a number: the short ones first.
func history(i int) string {
	n, length := len(deeds), 1
	for ; i >= n; n *= len(deeds) {
		i -= n
		length++
	}
	letters := make([]byte, length)
	for at := range letters {
		letters[at] = deeds[i%len(deeds)].letter
		i /= len(deeds)
	}
	return string(letters)
}

// telling reports whether a history has more to tell than a shorter one.
func telling(h string) bool {
	if strings.Contains(h, "oo") || strings.HasPrefix(h, "o") || strings.HasSuffix(h, "o") || strings.Contains(h, "kK") || strings.Contains(h, "KK") {
		return false // in the end all are online anyway
	}
	return strings.Count(h, "n") < 3
}

// refused reports whether the kernel of version 1 refuses a quota on the way: where nobody reports that a pod's sum grew, its
// own quota is that of before once it owns nothing, and no container's may be above. That is told, and another matter.
func refused(h string) bool { return strings.Contains(h, "+") && strings.Contains(h, "K") }

// playUnplugged plays one history, with copies that follow at once and with copies that do not, and reports whether all held.
func playUnplugged(t *testing.T, v cgroup.Version, kind ownerKind, h string) bool {
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

// TestUnpluggedFound plays what the enumeration once found, and one of TRIMTAB_HISTORY.
func TestUnpluggedFound(t *testing.T) {
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
					playUnplugged(t, v, kind, h)
				}
			})
		}
	}
}
