package nodeview

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/demotion"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// Source gives access to a View of the node.
type Source interface {
	// View calls read with the current state of the node. The state is locked while read runs, so read must not wait.
	View(read func(*View))
}

// read calls f with the view, and returns the result of f. It also returns the keeper. Callers must use the keeper only
// after read has returned, because f runs while the state is locked.
func read[T any](source Source, f func(*View) T) (out T, k *keeper.Keeper) {
	source.View(func(v *View) { out, k = f(v), v.Keeper })
	return out, k
}

// View is the node at one moment. Functions that get a View must neither change it nor store it.
type View struct {
	State    *engine.State
	Attached func() []api.Attachment // the runtimes that are connected
	Synced   time.Time               // when a runtime's list was last decided and applied; zero for never
	// MissingCgroups are the missing cgroup directories of running containers, of their pods, and of pods that own CPUs
	// or CDI devices, by container or sandbox id.
	MissingCgroups map[string]string
	// ApplyResult returns the result for a value of the container or sandbox with the id owner. The function is nil in
	// a what-if question, which applies no values.
	ApplyResult func(owner string, v lifecycle.Value) (ApplyResult, bool)
	// Observed are the numbers of the last comparison in mode observe; nil in mode enforce.
	Observed *api.Observed
	// CPUClasses says which CPUs should have a class, and which have it.
	CPUClasses cpuclass.Report
	// Demotion says how the kernel moves cold memory to slow memory nodes.
	Demotion demotion.Report
	// Conflict describes a container's creations that failed after the agent's answer; nil if there were none.
	Conflict func(*engine.Container) *lifecycle.Problem
	Keeper   *keeper.Keeper // has its own lock, so callers must not use it while read runs
}

// ConflictKey is the key of the problem that creations of a container failed because another plugin sets the same
// field. Administrators can solve the problem with the configuration key of this name.
const ConflictKey = "nri.cede"

// conflict describes the failed creations of a container; nil if there were none.
func (v *View) conflict(ctr *engine.Container) *lifecycle.Problem {
	if v.Conflict == nil {
		return nil
	}
	return v.Conflict(ctr)
}

// ApplyResult is the result of applying a value.
type ApplyResult struct {
	Field         lifecycle.Field
	Key           string
	Value         string            // the decided value as text
	Channel       string            // how the value reaches the container, such as "kernel", "runtime" or "nri create"
	Note          string            // more about the result, for users
	WhyKernelOnly string            // why the runtime does not get the value; "" if it does
	Applied       bool              // the value is in force
	Missing       api.MissingReason // why the value is not in force
	NodeValue     string            // the different value on the node, in mode observe
}

// fullNote returns the note for users, with WhyKernelOnly.
func (b ApplyResult) fullNote() string {
	if b.WhyKernelOnly == "" {
		return b.Note
	}
	return strings.TrimSuffix("only in the kernel: "+b.WhyKernelOnly+"; "+b.Note, "; ")
}

// applyResult returns the result for a value of the container or sandbox with the id owner. missing is the reason why
// the value is not in force; "" if it is in force.
func (v *View) applyResult(owner string, val lifecycle.Value) (b ApplyResult, missing api.MissingReason, ok bool) {
	if v.ApplyResult != nil {
		b, ok = v.ApplyResult(owner, val)
	}
	switch _, absent := v.MissingCgroups[owner]; {
	case b.Applied:
	case b.Missing != "" && b.Missing != api.NotYet:
		missing = b.Missing
	case absent:
		missing = api.NoCgroup
	default:
		missing = api.NotYet
	}
	return b, missing, ok
}

// values combines decided values with their results.
func (v *View) values(owner string, values []lifecycle.Value) []api.Value {
	var out []api.Value
	for _, val := range values {
		s := api.Value{Field: val.Setting(), Value: val.String(), Why: val.Why, Channel: "none", Note: "not applied yet"}
		if b, missing, ok := v.applyResult(owner, val); ok && b.Value == s.Value {
			s.Channel, s.Applied, s.Note, s.Kernel = b.Channel, b.Applied, b.fullNote(), b.NodeValue
			if v.Observed != nil {
				s.Missing = b.Missing
			}
			if missing == api.NoCgroup && b.Missing == api.NotYet {
				s.Note = "the container runs, but its cgroup " + v.MissingCgroups[owner] + " is not in the tree at cgroup.root"
			}
		}
		out = append(out, s)
	}
	return out
}

// withoutCgroup names containers that run without a cgroup, at most as many as limit.
func (v *View) withoutCgroup(limit int) []string {
	var out []string
	for id, dir := range v.MissingCgroups {
		ctr := v.State.Container(id)
		if ctr == nil || !ctr.Runs() {
			continue
		}
		out = append(out, v.State.FullName(ctr)+" ("+dir+")")
	}
	slices.Sort(out)
	return out[:min(limit, len(out))]
}

// missingCgroupsError says that running containers have no cgroup, so a node with an attached runtime is not ready.
type missingCgroupsError struct {
	count int      // the number of these containers
	names []string // the names of the first of them
}

func (e *missingCgroupsError) Error() string {
	return fmt.Sprintf("%d running containers have no cgroup in the tree at cgroup.root, so none of their values is in force: %s; set cgroup.root to the path where the node's cgroup tree is mounted (in a container: the host's /sys/fs/cgroup)",
		e.count, strings.Join(e.names, ", "))
}

// Ready returns why the agent is not ready; nil if it is. The agent is ready if a runtime is attached, the runtime's
// list of containers was decided and applied, and every running container has a cgroup.
func Ready(source Source) (err error) {
	source.View(func(v *View) {
		all := v.withoutCgroup(len(v.MissingCgroups))
		switch {
		case len(v.Attached()) == 0:
			err = errors.New("no runtime is attached")
		case v.Synced.IsZero():
			err = errors.New("the runtime's list of containers is not applied yet")
		case len(all) > 0:
			err = &missingCgroupsError{len(all), all[:min(3, len(all))]}
		}
	})
	return err
}
