package coresched

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
)

// Groups records which cookie belongs to which group of threads. It forgets a group after the last thread of the group
// has ended. Its methods may be called by several goroutines concurrently.
type Groups struct {
	kernel Kernel

	mu             sync.Mutex
	cookieByGroup  map[string]uint64
	threadsByGroup map[string][]int // ids of threads
	groupByCookie  map[uint64]string
	cleanupAt      int // recordLocked removes groups without live threads when there are more groups than this and than minCleanup
}

// minCleanup is a number of groups. While there are at most so many groups, recordLocked does not look for groups
// without live threads.
const minCleanup = 64

// New makes Groups for a kernel's threads.
func New(k Kernel) *Groups {
	return &Groups{kernel: k, cookieByGroup: map[string]uint64{}, threadsByGroup: map[string][]int{}, groupByCookie: map[uint64]string{}}
}

// maxRounds is the maximum number of times that Join reads the list of threads.
const maxRounds = 5

// Join gives all threads that the function threads lists the cookie of a group. If group is "", Join removes the
// cookies of the threads. found means that the function listed at least one thread. changed means that Join changed the
// cookie of a thread. A thread that starts during Join has the cookie of its parent. Join therefore lists the threads
// again until no cookie changes, but at most maxRounds times. If the threads have a cookie from an earlier run of the
// agent, that cookie becomes the cookie of the group.
func (g *Groups) Join(group string, threads func() ([]int, error)) (found, changed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range maxRounds {
		all, err := threads()
		if err != nil || len(all) == 0 {
			return found, changed, err
		}
		found = true
		again, err := g.joinLocked(group, all)
		changed = changed || again
		if err != nil || !again {
			return found, changed, err
		}
	}
	return found, changed, nil
}

// joinLocked gives the cookie of a group to these threads, and reports whether it changed the cookie of a thread.
func (g *Groups) joinLocked(group string, threads []int) (changed bool, err error) {
	from, want := 0, uint64(0) // from is a thread that already has the cookie want; 0 and 0 if no live thread has the group's cookie
	if group != "" {
		from, want = g.memberLocked(group)
	}
	var live []int
	for _, id := range threads {
		have, err := g.kernel.Cookie(id)
		switch {
		case errors.Is(err, syscall.ESRCH): // the thread has ended meanwhile
			continue
		case err != nil:
			return changed, fmt.Errorf("read the core scheduling cookie of thread %d: %w", id, err)
		}
		live = append(live, id)
		switch owner := g.groupByCookie[have]; {
		case have == want && (group == "" || want != 0):
			continue
		case group != "" && want == 0 && have != 0 && (owner == "" || owner == group):
			from, want = id, have // the cookie is from an earlier run of the agent
			g.recordLocked(group, want)
			continue
		case group != "" && want == 0:
			if want, err = g.createLocked(group, id); err != nil {
				return changed, err
			}
			from = id
		default:
			if err := g.kernel.Share(from, id); err != nil && !errors.Is(err, syscall.ESRCH) {
				return changed, fmt.Errorf("give thread %d the core scheduling cookie of group %q: %w", id, group, err)
			}
		}
		changed = true
	}
	if group != "" {
		g.threadsByGroup[group] = append(g.threadsByGroup[group], live...)
	}
	return changed, nil
}

// createLocked gives a thread a new cookie, which becomes the cookie of the group.
func (g *Groups) createLocked(group string, thread int) (uint64, error) {
	err := g.kernel.Create(thread)
	var c uint64
	if err == nil {
		c, err = g.kernel.Cookie(thread)
	}
	if err != nil {
		return 0, fmt.Errorf("give thread %d a core scheduling cookie: %w", thread, err)
	}
	g.recordLocked(group, c)
	return c, nil
}

// recordLocked records the cookie of a group. From time to time it forgets groups whose threads have ended.
func (g *Groups) recordLocked(group string, cookie uint64) {
	delete(g.groupByCookie, g.cookieByGroup[group])
	g.cookieByGroup[group], g.groupByCookie[cookie] = cookie, group
	if len(g.cookieByGroup) <= max(g.cleanupAt, minCleanup) {
		return
	}
	// No event reports that the last thread of a group has ended, so recordLocked checks all groups.
	for _, other := range slices.Collect(maps.Keys(g.cookieByGroup)) {
		if other != group {
			g.memberLocked(other)
		}
	}
	g.cleanupAt = 2 * len(g.cookieByGroup)
}

// memberLocked returns a live thread of a group and the group's cookie, or zeros if the group has no live thread. It
// removes from the group all threads that have ended or have another cookie. If no thread remains, it forgets the
// group, because the kernel removes a cookie when the last thread with this cookie ends.
func (g *Groups) memberLocked(group string) (thread int, cookie uint64) {
	seen := map[int]bool{}
	var live []int
	for _, id := range g.threadsByGroup[group] {
		if c, err := g.kernel.Cookie(id); err == nil && c != 0 && c == g.cookieByGroup[group] && !seen[id] {
			seen[id] = true
			live = append(live, id)
		}
	}
	if len(live) == 0 {
		delete(g.groupByCookie, g.cookieByGroup[group])
		delete(g.cookieByGroup, group)
		delete(g.threadsByGroup, group)
		return 0, 0
	}
	g.threadsByGroup[group] = live
	return live[0], g.cookieByGroup[group]
}
