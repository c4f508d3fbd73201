package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
	"github.com/trimtab/trimtab/internal/topology"
)

// cpuClassesFile is the file in paths.state with the contents that cpufreq and cpuidle files had before the agent's
// first write.
const cpuClassesFile = "cpuclasses.json"

// newCPUClassWriter makes the writer of the CPU classes; nil in observe mode.
func (a *Agent) newCPUClassWriter() *cpuclass.Writer {
	if isObserveMode(a.opt.Config) {
		return nil
	}
	o := cpuclass.Options{Files: a.opt.CPUFiles, Saved: a.files.load(cpuClassesFile), Boot: bootID(), Save: a.files.save(cpuClassesFile), Now: time.Now}
	if o.Files == nil && a.opt.Tree == nil {
		files, err := cpuclass.Open(a.opt.Config.Paths.CPU)
		if err == nil {
			o.Files = files
			closeOthers := a.close
			a.close = func() error { return errors.Join(closeOthers(), files.Close()) }
		} else {
			o.Files = cpuclass.UnavailableFS(err)
		}
	}
	if o.Files == nil {
		o.Files = cpuclass.UnavailableFS(errors.New("the node is simulated without cpufreq and cpuidle files"))
	}
	w, err := cpuclass.New(o)
	if err != nil {
		a.log.Warn("the agent cannot read the saved original frequencies and idle states of CPUs", logkey.Err, err)
	}
	return w
}

// releaseCPUClasses restores the cpufreq and cpuidle files that an ended agent changed. It returns the number of files
// that it restored, and the CPUs whose files it could not restore.
func releaseCPUClasses(c config.Config, dir *statefile.Dir) (restored int, failed []api.NotRestored, err error) {
	state := stateFiles{log: slog.New(slog.DiscardHandler), paths: c.Paths, dir: dir}
	data, err := dir.Read(cpuClassesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, nil // no agent changed a file
	}
	if err == nil {
		_, err = state.recordKey()
	}
	if err == nil {
		err = statefile.VerifySignature(state.signingKey, cpuClassesFile, data)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read the original frequencies and idle states of CPUs (%s): %w", dir.Path(cpuClassesFile), err)
	}
	files, err := cpuclass.Open(c.Paths.CPU)
	if err != nil {
		return 0, nil, fmt.Errorf("restore the original frequencies and idle states of CPUs (paths.cpu): %w", err)
	}
	defer files.Close()
	w, err := cpuclass.New(cpuclass.Options{Files: files, Saved: data, Boot: bootID(), Save: state.save(cpuClassesFile), Now: time.Now})
	if err != nil {
		return 0, nil, err
	}
	restored, failed = conductor.ReleaseCPUClasses(w)
	return restored, failed, nil
}

// CheckCPUs checks whether the CPUs of this node support the CPU classes of a valid configuration. It returns one error
// for each class that the CPUs do not support. Errors begin with the configuration key.
func CheckCPUs(c config.Config, m *topology.Machine) (wrong []error) {
	if c.Placement.Policy != "balloons" || len(c.Placement.Balloons.CPUClasses) == 0 {
		return nil
	}
	files, err := cpuclass.Open(c.Paths.CPU)
	if err != nil {
		return []error{fmt.Errorf("placement.balloons.cpuClasses: %w", err)}
	}
	defer files.Close()
	ids, err := topology.ParseList(m.Format(m.Online()))
	if err != nil {
		return []error{err}
	}
	classes := balloons.CPUClasses(c.Placement.Balloons)
	unsupported := cpuclass.Check(files, classes, ids)
	for i := range classes {
		if why := unsupported[classes[i].Name]; why != "" {
			wrong = append(wrong, fmt.Errorf("placement.balloons.cpuClasses[%d]: class %s: %s", i, classes[i].Name, why))
		}
	}
	return wrong
}
