package intent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// This file reads the class, pool or balloon type that resource claims of a pod name. The administrator's
// driver defines the devices of claims, so claims have priority over labels and annotations, which the
// author of the pod writes. Authorization rules apply to claims in the same way as to labels and annotations.

// claimedClasses returns the classes that a claim can name. A key is the name of the class in a CDI device.
func claimedClasses() map[string]Class {
	return map[string]Class{System.String(): System, Dedicated.String(): Dedicated, Shared.String(): Shared, Reclaimed.String(): Reclaimed}
}

// readClaimed reads the CDI devices of a pod's claims. A device names a value of one kind: a class, a pool or a balloon
// type. If the claims name different values of the same kind, the pod requests nothing of this kind.
func readClaimed(pod *lifecycle.Pod, out *Pod) {
	named := map[string]lifecycle.ClaimedDevice{}
	var differ []string
	for _, c := range pod.Claimed {
		kind, _, _ := strings.Cut(c.Device, "=")
		other, twice := named[kind]
		if twice && other.Device != c.Device {
			out.reportMalformed(claimSource(c), c.Device, "%s names %s: the claims of the pod name different values, so the agent ignores all of them", claimSource(other), printable(other.Device))
			differ = append(differ, kind)
		}
		if !twice {
			named[kind] = c
		}
	}
	for _, kind := range []string{lifecycle.ClassCDI, lifecycle.PoolCDI, lifecycle.BalloonCDI} {
		c, is := named[kind]
		if !is || slices.Contains(differ, kind) {
			continue
		}
		if err := out.addClaimed(kind, strings.TrimPrefix(c.Device, kind+"="), claimSource(c)); err != nil {
			out.reportMalformed(claimSource(c), c.Device, "%v", err)
		}
	}
}

// addClaimed adds the class, pool or balloon type that one device names. The caller adds the class before the pool,
// because only pods of some classes can name a pool.
func (p *Pod) addClaimed(kind, name, from string) error {
	switch class, known := claimedClasses()[name]; {
	case kind == lifecycle.ClassCDI && known:
		p.Class, p.ClassName = Sourced[Class]{class, from}, name
	case kind == lifecycle.ClassCDI:
		return fmt.Errorf("want one of the classes %s", strings.Join(sortedKeys(claimedClasses()), ", "))
	case kind == lifecycle.BalloonCDI && (name == "" || len(name) > maxBalloonTypeName):
		return fmt.Errorf("not the name of a balloon type: want 1 to %d bytes", maxBalloonTypeName)
	case kind == lifecycle.BalloonCDI:
		p.Balloon.Key, p.Balloon.V.Pod = from, Sourced[string]{name, from}
	case name == "" || !isPoolName(name):
		return fmt.Errorf("not the name of a pool: want up to %d letters, digits, dots, dashes and underscores", maxPoolName)
	case p.Class.IsSet() && p.Class.V != Shared && p.Class.V != System:
		return fmt.Errorf("only pods of the classes shared and system can name their pool, but %s sets the class %s", p.Class.Key, p.Class.V)
	case p.Class.V != System && slices.Contains(katalystPools, name):
		return errors.New("the agent uses a pool of this name itself; use another name")
	default:
		if p.Pool = (Sourced[string]{name, from}); !p.Class.IsSet() {
			p.Class, p.ClassName = Sourced[Class]{Shared, from}, Shared.String()
		}
	}
	return nil
}

// claimSource returns the text that names a claim as the source of a request. Reports show it in place of the key of a
// label or annotation.
func claimSource(c lifecycle.ClaimedDevice) string {
	if c.Claim == "" {
		return "resource claim of " + printable(c.Device)
	}
	return "resource claim " + printable(c.Claim)
}

// reportOverruled reports the pool and the balloon type that the dialect other requests, if a claim of the pod names
// another pool, or a balloon type. Claims have priority, so these requests of the dialect have no effect.
// reportOverruled does not report the class, because the method merge reports different classes.
func (p *Pod) reportOverruled(pod *lifecycle.Pod, other *Pod) {
	if len(pod.Claimed) == 0 {
		return
	}
	if p.Pool.IsSet() && other.Pool.IsSet() && other.Pool.V != p.Pool.V {
		p.reportMalformed(other.Pool.Key, other.Pool.V, "disagrees with %s, which names the pool %s and has priority", p.Pool.Key, p.Pool.V)
	}
	if p.Balloon.IsSet() && other.Balloon.IsSet() {
		p.reportMalformed(other.Balloon.Key, describePerContainer(other.Balloon.V), "%s names the balloon type %s and has priority", p.Balloon.Key, p.Balloon.V.Pod.V)
	}
}
