package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/topology"
)

// Options are what an agent is made of. Machine and the cgroup file interface
// are given by tests and the embedded runtime; left nil, they are read from
// the node.
type Options struct {
	Config     config.Config
	ConfigFile string // followed for changes; "" for none
	Version    string
	Log        *slog.Logger
	Machine    *topology.Machine
}

// Agent is a running Trimtab.
type Agent struct{}

// New makes an agent. Nothing runs and nothing is written before Run.
func New(o Options) (*Agent, error) { return nil, errors.New("under construction") }

// Run blocks until ctx ends or the agent cannot go on.
func (a *Agent) Run(ctx context.Context) error { return nil }

// Reconfigure puts a new configuration in force for what lives and what comes.
func (a *Agent) Reconfigure(c config.Config) error { return nil }

// Source is what the status server and tests ask.
func (a *Agent) Source() status.Source { return nil }

// Connected reports whether an attachment is registered and synchronised.
func (a *Agent) Connected() bool { return false }
