package coresched

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
)

// Groups records which cookie belongs to which group. A group is known while one of its threads
// lives. Its methods may be called by several goroutines concurrently.
type Groups struct {
	kernel Kernel

	mu        sync.Mutex
	cookies   map[string]uint64
	members   map[string][]int  // threads by group
	groups    map[uint64]string // by cookie
	cleanupAt int               // the number of groups above which groups without threads are removed
}

// minCleanup is the number of groups up to which groups without threads are not removed.
const minCleanup = 64

// New makes Groups for a kernel's threads.
func New(k Kernel) *Groups {
	return &Groups{kernel: k, cookies: map[string]uint64{}, members: map[string][]int{}, groups: map[uint64]string{}}
}

// maxRounds limits how often Join reads the list of threads.
const maxRounds = 5

// Join gives threads the cookie of a group, "" for none. It reports whether there were any
// threads, and whether one had another cookie. Threads that start meanwhile have their parent's
// cookie, so Join repeats until there are no new ones. A cookie from an earlier run of the
// agent counts as the group's.
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

func (g *Groups) joinLocked(group string, threads []int) (changed bool, err error) {
	from, want := 0, uint64(0)
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
			return changed, fmt.Errorf("read the cookie of thread %d: %w", id, err)
		}
		live = append(live, id)
		switch owner := g.groups[have]; {
		case have == want && (group == "" || want != 0):
			continue
		case group != "" && want == 0 && have != 0 && (owner == "" || owner == group):
			from, want = id, have // from an earlier run
			g.recordLocked(group, want)
			continue
		case group != "" && want == 0:
			if want, err = g.createLocked(group, id); err != nil {
				return changed, err
			}
			from = id
		default:
			if err := g.kernel.Share(from, id); err != nil && !errors.Is(err, syscall.ESRCH) {
				return changed, fmt.Errorf("give thread %d the cookie of group %q: %w", id, group, err)
			}
		}
		changed = true
	}
	if group != "" {
		g.members[group] = append(g.members[group], live...)
	}
	return changed, nil
}

func (g *Groups) createLocked(group string, thread int) (uint64, error) {
	err := g.kernel.Create(thread)
	var c uint64
	if err == nil {
		c, err = g.kernel.Cookie(thread)
	}
	if err != nil {
		return 0, fmt.Errorf("give thread %d a cookie: %w", thread, err)
	}
	g.recordLocked(group, c)
	return c, nil
}

func (g *Groups) recordLocked(group string, cookie uint64) {
	delete(g.groups, g.cookies[group])
	g.cookies[group], g.groups[cookie] = cookie, group
	if len(g.cookies) <= max(g.cleanupAt, minCleanup) {
		return
	}
	// No event reports the end of a group: its last thread ends, and its name is not used
	// again.
	for _, other := range slices.Collect(maps.Keys(g.cookies)) {
		if other != group {
			g.memberLocked(other)
		}
	}
	g.cleanupAt = 2 * len(g.cookies)
}

// memberLocked returns a live thread of a group and its cookie, or zeros. It removes threads
// that have ended or have another cookie. Without a member the cookie is gone.
func (g *Groups) memberLocked(group string) (thread int, cookie uint64) {
	seen := map[int]bool{}
	var live []int
	for _, id := range g.members[group] {
		if c, err := g.kernel.Cookie(id); err == nil && c != 0 && c == g.cookies[group] && !seen[id] {
			seen[id] = true
			live = append(live, id)
		}
	}
	if len(live) == 0 {
		delete(g.groups, g.cookies[group])
		delete(g.cookies, group)
		delete(g.members, group)
		return 0, 0
	}
	g.members[group] = live
	return live[0], g.cookies[group]
}
