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

// Groups manages the groups of a tree. A group has owners: the ids of the containers or pods that use the group. It
// exists while it has an owner. Several goroutines may call the methods of Groups concurrently.
type Groups struct {
	files FS // the resctrl tree

	mu     sync.Mutex                 // guards owners; also held while groups and their threads change
	owners map[string]map[string]bool // the owners of each group, by the group's name
}

// New returns Groups for a tree. It does not change the groups of an earlier agent, which RemoveUnownedGroups removes.
func New(files FS) *Groups { return &Groups{files: files, owners: map[string]map[string]bool{}} }

// checkName returns an error for a name that a group of Trimtab cannot have. The name of the root group is "". The name
// of a control group is GROUP. The name of a monitoring group is GROUP/MONITOR, or /MONITOR below the root group.
func checkName(name string) error {
	group, monitor, isMonitor := strings.Cut(name, "/")
	ok := group == "" || strings.HasPrefix(group, Prefix)
	if isMonitor {
		ok = ok && strings.HasPrefix(monitor, Prefix)
	}
	if !ok || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/") != "" || len(name) > 160 {
		return fmt.Errorf("%q is not the name of a resctrl group of Trimtab", name)
	}
	return nil
}

// dir returns the directory of a group. A monitoring group is in the directory mon_groups of its control group.
func dir(name string) string {
	if group, monitor, isMonitor := strings.Cut(name, "/"); isMonitor {
		return path.Join(group, "mon_groups", monitor)
	}
	return path.Join(name, ".")
}

// AddOwner adds an owner to a group. It makes the group if the group is missing, and sets the group's allocation.
// changed means that AddOwner has made the group or changed its allocation.
func (g *Groups) AddOwner(owner, name, allocation string) (changed bool, err error) {
	if name == "" {
		return false, errors.New("the agent cannot set the allocation of the root group of resctrl")
	}
	if err := checkName(name); err != nil {
		return false, err
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

// makeGroupLocked makes the group if it does not exist, and adds the owner. made means that the group did not exist.
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

// lastCommandStatus returns the kernel's explanation of its last refusal in parentheses, or "" if there is none.
func (g *Groups) lastCommandStatus() string {
	text, err := g.files.ReadFile("info/last_cmd_status")
	if s := strings.TrimSpace(string(text)); err == nil && s != "" && s != "ok" {
		return " (" + s + ")"
	}
	return ""
}

// maxRounds is how often Join reads the list of threads at most.
const maxRounds = 5

// Join moves threads into a group. The function threads returns the current list of these threads. found means that
// there are threads. moved means that a thread was not in the group before. If the group is a monitoring group, Join
// makes the group and adds the owner. A thread that starts while Join runs is in the group of the thread that created
// it. So Join reads the list again until all threads are in the group, at most maxRounds times.
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
			if err != nil && !errors.Is(err, syscall.ESRCH) { // ESRCH: the thread has ended since threads listed it
				return found, moved, fmt.Errorf("move thread %d into the group of %s: %w%s", id, file, err, g.lastCommandStatus())
			}
			moved = true
		}
	}
	return found, moved, nil
}

// RemoveOwner removes an owner from a group. If the group then has no owner, RemoveOwner removes the group.
func (g *Groups) RemoveOwner(owner, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.removeOwnerLocked(owner, name)
}

// removeOwnerLocked is RemoveOwner for callers that hold the lock.
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

// RemoveOwnerFromAll removes an owner from all groups, and removes the groups that then have no owner.
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
		monitors, err := g.files.List(path.Join(group, "mon_groups"))
		if err != nil {
			continue // this machine has no monitoring groups
		}
		for _, name := range monitors {
			if strings.HasPrefix(name, Prefix) && len(g.owners[group+"/"+name]) == 0 {
				errs = append(errs, g.files.Rmdir(path.Join(group, "mon_groups", name)))
			}
		}
	}
	return errors.Join(errs...)
}
