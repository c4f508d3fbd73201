package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	"github.com/trimtab/trimtab/internal/adopt"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/status"
)

// adoptFile is the file in paths.state that `trimtab adopt --apply` writes. When the agent starts the next time, it
// reads the file and takes over from another agent. Other state files are signed. This file is not, because the key for
// signatures does not exist before the agent's first start.
const adoptFile = "adopt.json"

// Adopt writes the file adoptFile, so that the agent takes over from another agent at its next start.
func Adopt(c config.Config, from lifecycle.FormerAgent) error {
	if c.Paths.State == "" {
		return errors.New("the agent cannot take over, because it keeps no state files: set paths.state")
	}
	dir := stateDirectory(nil, c.Paths.State)
	text, err := json.Marshal(from)
	if err == nil {
		err = dir.Prepare(adoptFile)
	}
	if err == nil {
		err = dir.Write(adoptFile, text)
	}
	if err != nil {
		return fmt.Errorf("write the file for the takeover at the next start (paths.state): %w", err)
	}
	return nil
}

// formerAgent is the other agent from which this agent takes over. This agent takes over when the runtime reports its
// containers for the first time.
type formerAgent struct {
	log *slog.Logger
	// save saves the checkpoint and removes the file adoptFile.
	save func() error

	mu             sync.Mutex             // guards takeoverSource
	takeoverSource *lifecycle.FormerAgent // what the other agent assigned; nil after the takeover, or if there is no takeover
}

// readTakeover reads the file adoptFile, if `trimtab adopt --apply` wrote one.
func (a *Agent) readTakeover() *formerAgent {
	f := &formerAgent{log: a.log, save: func() error {
		a.conductor.Checkpoint().SaveNow(a.files.save(checkpointFile))
		return a.files.dir.Remove(adoptFile)
	}}
	if a.files.dir == nil {
		return f
	}
	text, err := a.files.dir.Read(adoptFile)
	if errors.Is(err, fs.ErrNotExist) {
		return f
	}
	var from lifecycle.FormerAgent
	if err == nil {
		err = json.Unmarshal(text, &from)
	}
	if err == nil {
		_, err = adopt.FindSystem(from.System)
	}
	if err != nil {
		file, moved := a.files.dir.RenameDamaged(adoptFile)
		a.log.Warn("the agent does not take over from another agent: the file of 'trimtab adopt' is damaged or not trusted, and was renamed",
			logkey.File, file, logkey.Err, errors.Join(err, moved))
		return f
	}
	f.takeoverSource = &from
	return f
}

// Containers returns the CPUs and memory nodes that the other agent assigned to the containers of an event, by
// container id. It returns nil after the takeover.
func (f *formerAgent) Containers(ev *lifecycle.Event) map[string]lifecycle.FormerContainer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.takeoverSource == nil {
		return nil
	}
	gave, err := adopt.MatchContainers(f.takeoverSource, ev.Pods, ev.Containers)
	if err != nil {
		f.log.Error("the agent cannot take over the CPUs of containers from the other agent", logkey.Err, err)
		return nil
	}
	f.log.Info("the agent takes over from another agent: containers keep their CPUs if the configuration allows it",
		logkey.Source, f.takeoverSource.System, logkey.Values, len(gave))
	return gave
}

// EndTakeover ends the takeover. The conductor calls EndTakeover after it has applied the decisions about the
// containers that the runtime listed.
func (f *formerAgent) EndTakeover() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.takeoverSource == nil {
		return
	}
	f.takeoverSource = nil
	if err := f.save(); err != nil {
		f.log.Warn("the agent cannot remove the file of 'trimtab adopt'; at its next start it reads the file again, but changes the CPUs of no container", logkey.Err, err)
	}
}

// PlanAdoption returns the decisions that the agent would make if it started now and took over from another agent.
func (s source) PlanAdoption(from *lifecycle.FormerAgent) (api.Adoption, error) {
	switch err := nodeview.Ready(s.a.conductor); {
	case !isObserveMode(s.a.opt.Config):
		return api.Adoption{}, fmt.Errorf("%w: the agent has mode: enforce and has already decided about the running containers; use an agent with mode: observe", status.ErrCannotAdopt)
	case err != nil:
		return api.Adoption{}, fmt.Errorf("%w: the agent knows no container yet: %w", status.ErrCannotAdopt, err)
	}
	got, err := s.a.conductor.SimulateTakeover(func(ev *lifecycle.Event) (map[string]lifecycle.FormerContainer, error) {
		return adopt.MatchContainers(from, ev.Pods, ev.Containers)
	})
	if err != nil {
		return api.Adoption{}, err
	}
	out := nodeview.Adoption(got.State, got.KernelCPUs, got.FormerContainers)
	out.From, out.ContainersRead = from.System, len(from.Containers)
	return out, nil
}
