package resctrl

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Prefix begins the names of all groups that Trimtab makes.
const Prefix = "trimtab-"

// Groups manages the groups of a tree. A group exists while it has an owner. Its methods may be called by
// several goroutines concurrently.
type Groups struct {
	files FS

	mu     sync.Mutex
	owners map[string]map[string]bool // by path of the group
}

// New makes Groups on a tree. It leaves the groups of an earlier agent as they are; see RemoveUnownedGroups.
func New(files FS) *Groups { return &Groups{files: files, owners: map[string]map[string]bool{}} }

// checkName returns an error for a name that no group of Trimtab may have. A name is "" for the root group, GROUP for a
// control group, or GROUP/MONITOR for a monitoring group, whose GROUP may be empty.
func checkName(name string) error {
	group, measure, measures := strings.Cut(name, "/")
	ok := group == "" || strings.HasPrefix(group, Prefix)
	if measures {
		ok = ok && strings.HasPrefix(measure, Prefix)
	}
	if !ok || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/") != "" || len(name) > 160 {
		return fmt.Errorf("%q is not the name of a group of Trimtab", name)
	}
	return nil
}

// dir returns a group's directory; monitoring groups are below mon_groups.
func dir(name string) string {
	if group, measure, measures := strings.Cut(name, "/"); measures {
		return path.Join(group, "mon_groups", measure)
	}
	return path.Join(name, ".")
}

// AddOwner adds an owner to a group, makes the group if it is missing, and sets its allocation. The
// group exists as long as it has owners. It reports whether it changed something.
func (g *Groups) AddOwner(owner, name, allocation string) (changed bool, err error) {
	if err := checkName(name); err != nil || name == "" {
		return false, errors.Join(err, errors.New("the root group belongs to the kernel"))
	}
	a, err := ParseAllocation(allocation)
	if err != nil {
		return false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m, err := readMachine(g.files)
	if err != nil {
		return false, err
	}
	lines, err := m.lines(a)
	if err != nil {
		return false, err
	}
	if changed, err = g.makeGroupLocked(owner, name); err != nil {
		return changed, err
	}
	file := path.Join(dir(name), "schemata")
	for _, line := range lines {
		have, err := g.files.ReadFile(file)
		if err != nil {
			return changed, err
		}
		if sameLine(string(have), line) {
			continue
		}
		if err := g.files.WriteFile(file, []byte(line+"\n")); err != nil {
			return changed, fmt.Errorf("write %q: %w%s", line, err, g.lastCommandStatus())
		}
		changed = true
	}
	return changed, nil
}

// makeGroupLocked makes a group, unless it exists, and adds the owner. made reports whether it made the group.
func (g *Groups) makeGroupLocked(owner, name string) (made bool, err error) {
	err = g.files.Mkdir(dir(name))
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return false, fmt.Errorf("make group %s: the machine supports no more groups: %w", name, err)
	case err != nil && !errors.Is(err, syscall.EEXIST):
		return false, fmt.Errorf("make group %s: %w", name, err)
	}
	if g.owners[name] == nil {
		g.owners[name] = map[string]bool{}
	}
	g.owners[name][owner] = true
	return err == nil, nil
}

// lastCommandStatus returns the kernel's explanation of its last refusal.
func (g *Groups) lastCommandStatus() string {
	text, err := g.files.ReadFile("info/last_cmd_status")
	if s := strings.TrimSpace(string(text)); err == nil && s != "" && s != "ok" {
		return " (" + s + ")"
	}
	return ""
}

// maxRounds limits how often Join reads the list of threads.
const maxRounds = 5

// Join moves threads into a group, "" for the root group. It reports whether it found any threads, and whether one had
// to be moved. If the group is a monitoring group, Join makes it and adds the owner. Threads that start meanwhile are
// in the group of the thread that created them, so Join repeats, at most maxRounds times, until all threads are in the
// group.
func (g *Groups) Join(owner, name string, threads func() ([]int, error)) (found, moved bool, err error) {
	if err := checkName(name); err != nil {
		return false, false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if strings.Contains(name, "/") {
		if _, err := g.makeGroupLocked(owner, name); err != nil {
			return false, false, err
		}
	}
	file := path.Join(dir(name), "tasks")
	for range maxRounds {
		all, err := threads()
		if err != nil || len(all) == 0 {
			return found, moved, err
		}
		found = true
		text, err := g.files.ReadFile(file)
		if err != nil {
			return found, moved, err
		}
		inside := map[string]bool{}
		for id := range strings.FieldsSeq(string(text)) {
			inside[id] = true
		}
		missing := slices.DeleteFunc(all, func(id int) bool { return inside[strconv.Itoa(id)] })
		if len(missing) == 0 {
			return found, moved, nil
		}
		for _, id := range missing {
			err := g.files.WriteFile(file, strconv.AppendInt(nil, int64(id), 10))
			if err != nil && !errors.Is(err, syscall.ESRCH) { // the thread has ended meanwhile
				return found, moved, fmt.Errorf("move thread %d to %s: %w%s", id, file, err, g.lastCommandStatus())
			}
			moved = true
		}
	}
	return found, moved, nil
}

// RemoveOwner removes an owner from a group. It removes the group after its last owner.
func (g *Groups) RemoveOwner(owner, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.removeOwnerLocked(owner, name)
}

func (g *Groups) removeOwnerLocked(owner, name string) error {
	if !g.owners[name][owner] {
		return nil
	}
	delete(g.owners[name], owner)
	if len(g.owners[name]) > 0 {
		return nil
	}
	delete(g.owners, name)
	if err := g.files.Rmdir(dir(name)); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("remove group %s: %w", name, err)
	}
	return nil
}

// RemoveOwnerFromAll removes an owner from all groups.
func (g *Groups) RemoveOwnerFromAll(owner string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(g.owners)) {
		errs = append(errs, g.removeOwnerLocked(owner, name))
	}
	return errors.Join(errs...)
}

// RemoveUnownedGroups removes the groups that an earlier agent left: all groups with Prefix that have no owner.
func (g *Groups) RemoveUnownedGroups() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	groups, err := g.files.List(".")
	if err != nil {
		return fmt.Errorf("list the groups of an earlier agent: %w", err)
	}
	var errs []error
	ours := []string{""}
	for _, name := range groups {
		switch {
		case !strings.HasPrefix(name, Prefix):
		case len(g.owners[name]) == 0:
			errs = append(errs, g.files.Rmdir(name))
		default:
			ours = append(ours, name)
		}
	}
	for _, group := range ours {
		measures, err := g.files.List(path.Join(group, "mon_groups"))
		if err != nil {
			continue // this machine has no monitoring
		}
		for _, name := range measures {
			if strings.HasPrefix(name, Prefix) && len(g.owners[group+"/"+name]) == 0 {
				errs = append(errs, g.files.Rmdir(path.Join(group, "mon_groups", name)))
			}
		}
	}
	return errors.Join(errs...)
}
