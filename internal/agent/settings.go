package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/topology"
)

// settings has the configuration in force and the machine, and applies changes of both.
type settings struct {
	log          *slog.Logger
	logLevel     *slog.LevelVar       // receives log.level; nil if the caller sets the level itself
	setLogFormat func(string)         // is called with log.format; nil if the caller sets the format itself
	override     func(*config.Config) // sets the values of flags in a new configuration; may be nil
	node         node
	conductor    *conductor.Conductor
	observesOnly bool // the agent started with mode: observe, so it changes nothing until it ends

	// applyMu is held while a policy is made and applied, so that policies are applied in the order in which
	// they are made.
	applyMu sync.Mutex

	mu         sync.Mutex // guards all below
	machine    *topology.Machine
	config     config.Config
	generation uint64 // counts the configurations that were applied, for the log
	fileErr    string // why the newest file or drop-in was refused, or which part of it has no effect
	serverErr  string // why the API server's configuration was refused
	dropIn     bool   // the runtime has sent a configuration (drop-in), which replaces the file
	// releasedAt is when a release began; zero if there was none. After a release the agent decides nothing.
	releasedAt time.Time
}

// current returns the configuration in force.
func (s *settings) current() config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// currentMachine returns the machine with its current CPUs and memory.
func (s *settings) currentMachine() *topology.Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine
}

// policy makes the policy of a configuration for a machine. After a release it makes a policy that decides nothing.
// The caller holds applyMu.
func (s *settings) policy(c config.Config, m *topology.Machine) (engine.Policy, error) {
	p, err := policyOf(c, m, s.node)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.releasedAt.IsZero() {
		p.Hooks, p.PlacementOn, p.Strict, p.FatalHooks = nil, false, false, nil
	}
	return p, err
}

// refusedReason returns the reason why a newer configuration was refused; "" if none was. The caller holds mu.
func (s *settings) refusedReason() string {
	return strings.Trim(s.fileErr+"\n"+s.serverErr, "\n")
}

// setServerErr stores the reason why the API server's configuration was refused; nil means that the API server's newest
// configuration is in force.
func (s *settings) setServerErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serverErr = ""; err != nil {
		s.serverErr = err.Error()
	}
}

// setFileErr stores and logs the reason why a newer file, or the runtime's drop-in, was refused; nil means that the
// newest file or drop-in is in force.
func (s *settings) setFileErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.fileErr = ""
		return
	}
	s.fileErr = err.Error()
	s.log.Error("the agent refuses the new configuration; the old one stays in force", logkey.Err, err)
}

// applyFile applies a changed configuration file. It returns an error if the runtime sent a configuration, which has
// priority over the file.
func (s *settings) applyFile(c config.Config) error {
	s.mu.Lock()
	dropIn := s.dropIn
	s.mu.Unlock()
	if dropIn {
		return errors.New("the agent does not use this file, because the runtime sent a configuration (drop-in), which has priority")
	}
	return s.apply(c)
}

// applyServerLayers applies a configuration with changed layers from the API server. It returns an error if the runtime
// sent a configuration (drop-in), which has priority. It keeps fileErr, because the error of a refused configuration
// file stays true.
func (s *settings) applyServerLayers(c config.Config) error {
	s.mu.Lock()
	file := s.fileErr
	s.mu.Unlock()
	err := s.applyFile(c)
	s.mu.Lock()
	s.fileErr = file
	s.mu.Unlock()
	return err
}

// applyDropIn applies the configuration that a runtime sends to an NRI plugin that it launched.
func (s *settings) applyDropIn(yaml string) error {
	c, err := config.Parse("the runtime's drop-in", []byte(yaml))
	if err != nil {
		s.setFileErr(err)
		return err
	}
	if s.override != nil {
		s.override(&c)
	}
	s.mu.Lock()
	hadDropIn, inForce := s.dropIn, s.config
	s.dropIn = true
	s.mu.Unlock()
	tooLate := config.KeepStartKeys(&c, inForce)
	// KeepStartKeys has replaced the drop-in's values of keys that the agent reads only at its start. Other keys may
	// depend on the replaced values, so the result is validated again. Problems that the configuration in force also has
	// are ignored.
	known := config.Validate(inForce)
	wrong := slices.DeleteFunc(config.Validate(c), func(p config.Problem) bool { return slices.Contains(known, p) })
	if len(wrong) > 0 {
		return s.refuseDropIn(hadDropIn, fmt.Errorf("the runtime's drop-in is not valid together with the keys that the agent reads only at its start: %w", &config.Error{Problems: wrong}))
	}
	if err := s.apply(c); err != nil {
		return s.refuseDropIn(hadDropIn, err)
	}
	if len(tooLate) > 0 {
		s.setPartialErr(fmt.Errorf("the runtime's drop-in sets keys that the agent or the runtime reads before the agent gets the drop-in: %s: "+
			"set them in the configuration file; all other keys are in force", strings.Join(tooLate, ", ")))
	}
	return nil
}

// refuseDropIn notes the error of a drop-in that is not in force, and returns it. Changes of the configuration file
// take effect again, unless an earlier drop-in is in force (hadDropIn).
func (s *settings) refuseDropIn(hadDropIn bool, err error) error {
	s.mu.Lock()
	s.dropIn = hadDropIn
	s.mu.Unlock()
	s.setFileErr(err)
	return err
}

// setPartialErr stores and logs an error which says that a part of the configuration in force has no effect.
func (s *settings) setPartialErr(err error) {
	s.mu.Lock()
	s.fileErr = err.Error()
	s.mu.Unlock()
	s.log.Error("a part of the configuration has no effect", logkey.Err, err)
}

// apply applies a new configuration to running and new pods. It logs the changed keys that take effect only after a
// restart of the agent.
func (s *settings) apply(c config.Config) error {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if s.observesOnly {
		observed, off := observeOnly(c)
		observed.Mode = c.Mode
		c = observed
		logIgnoredKeys(s.log, off)
	}
	policy, err := s.policy(c, s.currentMachine())
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.config
	s.config, s.fileErr = c, ""
	s.generation++
	gen := s.generation
	s.mu.Unlock()
	if s.logLevel != nil {
		_ = s.logLevel.UnmarshalText([]byte(c.Log.Level)) // no error: validation refuses other levels
	}
	if s.setLogFormat != nil {
		s.setLogFormat(c.Log.Format)
	}
	for _, key := range config.KeysNeedingRestart(old, c) {
		s.log.Warn("a changed setting takes effect after a restart of the agent", logkey.Key, key)
	}
	s.conductor.Configure(policy, conductorTuning(c))
	s.log.Info("the configuration is in force", logkey.Generation, gen)
	return nil
}

// applyMachine applies a change of the machine. The caller holds applyMu.
func (s *settings) applyMachine(now *topology.Machine) {
	c := s.current()
	policy, err := s.policy(c, now)
	if err != nil {
		s.log.Error("the configuration is not valid for the CPUs that are online now; the agent keeps its earlier decisions", logkey.Err, err)
		return
	}
	s.mu.Lock()
	s.machine = now
	s.mu.Unlock()
	s.conductor.ConfigureMachine(now, policy, conductorTuning(c))
}

// releaseState reports whether a release has begun, and returns the reason why a newer configuration was refused.
func (s *settings) releaseState() (released bool, refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.releasedAt.IsZero(), s.refusedReason()
}

// releaseTime returns when a release began; zero if there was none.
func (s *settings) releaseTime() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releasedAt
}

// release restores everything that the agent changed. After a release the agent decides nothing.
func (s *settings) release(ctx context.Context) (api.Released, error) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	s.mu.Lock()
	c := s.config
	again := !s.releasedAt.IsZero()
	if !again { // a second release keeps the time of the first
		s.releasedAt = time.Now()
	}
	s.mu.Unlock()
	policy, err := s.policy(c, s.currentMachine())
	if err != nil {
		return api.Released{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, releaseRuntimeTimeout)
	defer cancel()
	r := s.conductor.Release(ctx, policy)
	r.AlreadyReleased = again
	return r, nil
}
