package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sim"
)

// agentFlags are the flags of the agent. A flag that is set overrides its key in the configuration file.
type agentFlags struct {
	config, attach, nriSocket, nriIndex, httpAddress, logLevel, logFormat string
	proxy                                                                 proxyFlags
}

func newAgent() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent on this node",
		Long: `Attaches to the container runtime as the key attach says: over NRI, as a proxy of the
CRI, by watching the runtime and its cgroups (bypass), or as a hook server of a runtime
proxy. Until the agent ends, it decides the values of containers and keeps them in force.
Afterwards the containers keep their values.

The agent watches the configuration file. It applies a valid change at once, to
running pods and new ones. It refuses and reports an invalid change, and the previous
configuration stays in force. SIGHUP makes the agent read the file at once. Flags override
the file. The agent reads them only at the start.

A runtime may also start this program itself, as a pre-installed NRI plugin: put
it into the runtime's plugin directory as NN-trimtab, where NN are two digits that
order plugins. A program with this name, or started by the runtime, needs no subcommand.`,
		Example: `  trimtab agent
  trimtab agent --config /etc/trimtab/config.yaml --log-level debug`,
		Args: cli.Arguments(0),
	}
	var f agentFlags
	d := config.Default()
	cmd.Flags().StringVar(&f.config, "config", "", "configuration `file` (default $"+configVariable+", or "+configFile+" if it exists)")
	cmd.Flags().StringVar(&f.attach, "attach", "", "nri, cri, bypass, auto or hooks (default "+d.Attach+")")
	cmd.Flags().StringVar(&f.nriSocket, "nri-socket", "", "NRI socket of the runtime (default "+d.NRI.Socket+")")
	cmd.Flags().StringVar(&f.nriIndex, "nri-plugin-index", "", "two digits that order NRI plugins (default "+d.NRI.Index+")")
	cmd.Flags().StringVar(&f.httpAddress, "http-address", "", "where /metrics, /healthz and /readyz are served, e.g. 127.0.0.1:9464 (default nowhere)")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error (default "+d.Log.Level+")")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "", "text or json (default "+d.Log.Format+")")
	f.proxy.add(cmd.Flags(), d.CRI)
	completeValues(cmd, map[string][]string{
		"attach": valuesOf("attach"), "log-level": valuesOf("log.level"), "log-format": valuesOf("log.format"), "backend-runtime-mode": {"Containerd"},
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runAgent(cmd.Context(), f, cmd.ErrOrStderr()) }
	return cmd
}

// valuesOf returns the values that a configuration key accepts. The parameter path names the key, such as "log.level".
func valuesOf(path string) []string {
	for _, k := range config.Keys() {
		if k.Path == path {
			return k.Values
		}
	}
	return nil
}

// apply copies the value of each flag that the user gave to the configuration key in c that belongs to the flag. It
// then validates c.
func (f agentFlags) apply(c *config.Config) error {
	for _, o := range []struct {
		flag string
		key  *string
	}{
		{f.attach, &c.Attach},
		{f.nriSocket, &c.NRI.Socket},
		{f.nriIndex, &c.NRI.Index},
		{f.httpAddress, &c.HTTP.Address},
		{f.logLevel, &c.Log.Level},
		{f.logFormat, &c.Log.Format},
	} {
		if o.flag != "" {
			*o.key = o.flag
		}
	}
	if err := f.proxy.apply(c, f.attach); err != nil {
		return err
	}
	if problems := config.Validate(*c); problems != nil {
		return fmt.Errorf("the flags are not valid: %w", &config.Error{Problems: problems})
	}
	return nil
}

func runAgent(ctx context.Context, f agentFlags, stderr io.Writer) error {
	c, file, err := loadConfig(f.config)
	if err != nil {
		return err
	}
	if err := f.apply(&c); err != nil {
		return err
	}
	level, format := &slog.LevelVar{}, &logFormat{}
	level.Set(logLevels[c.Log.Level])
	format.set(c.Log.Format)
	log := newLog(format, level, stderr)
	sim.SetNRILog(log)
	klog.SetSlogLogger(log) // write the log of client-go to the agent's log
	b := cli.ThisBuild()
	log.Info("the agent starts", logkey.Version, b.Version, logkey.Commit, b.Commit, logkey.Config, file)
	log.Debug("effective configuration", logkey.YAML, string(config.Print(c)))
	handed, err := cri.SystemdListeners()
	if err != nil {
		return err
	}
	if len(handed) > 0 && c.Attach != "cri" {
		log.Warn("systemd passed a socket for the CRI proxy, but attach is not cri: nothing accepts connections to that socket; set attach: cri, or disable the socket unit", logkey.Mode, c.Attach)
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	a, err := agent.New(agent.Options{
		Reload:    reload,
		Listeners: handed,
		Config:    c, ConfigFile: file, Version: b.Version, Commit: b.Commit, Log: log, LogLevel: level, SetLogFormat: format.set,
		Override: func(c *config.Config) { _ = f.apply(c) }, // the agent validates the result again, so this error is not needed
	})
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	err = a.RunAlone(ctx)
	stopped := ctx.Err() != nil && errors.Is(err, context.Canceled)
	if err != nil && !stopped {
		return fmt.Errorf("run the agent: %w", err)
	}
	log.Info("the agent has stopped; containers keep their values")
	return nil
}

// logLevels maps the values of log.level to the levels of package slog.
var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}
