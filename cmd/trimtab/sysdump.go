package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/doctor"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newSysdump() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sysdump [FILE.tar.gz]",
		Short: "Collect what a maintainer needs to find a fault",
		Long: `Packs a compressed archive: the version, the agent's status, configuration and journal,
its metrics where http.address serves them, what doctor finds, and the node's kernel,
CPUs, NUMA nodes and cgroup mounts. What cannot be had is named in the archive, and the
archive is written nevertheless; - is standard output.

Values of environment variables are left out, and so are keys and tokens. Names of pods
are in it, and the labels and annotations that something was decided from.`,
		Example: "  trimtab sysdump\n  trimtab sysdump /tmp/node-7.tar.gz\n  tar -xOzf trimtab-sysdump.tar.gz trimtab-sysdump/status.json | jq .unapplied",
		Args:    cli.Arguments(0, "FILE.tar.gz"),
	}
	socket := addSocket(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file := "trimtab-sysdump.tar.gz"
		if len(args) > 0 {
			file = args[0]
		}
		parts := sysdumpParts(cmd.Context(), *socket, cmd.Flag("config").Value.String())
		if file == "-" {
			return pack(cmd.OutOrStdout(), parts)
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return &usageError{fmt.Errorf("write the archive: %w", err)}
		}
		if err := errors.Join(pack(f, parts), f.Close()); err != nil {
			return errors.Join(err, os.Remove(file))
		}
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "%s: %d parts\n", file, len(parts))
		for _, p := range parts {
			if p.err != nil {
				fmt.Fprintf(w, "  missing: %s: %v\n", p.name, p.err)
			}
		}
		return nil
	}
	return cmd
}

// archivePart is a file of the archive, or the reason why it is missing.
type archivePart struct {
	name string
	data []byte
	err  error
}

// nodeFiles are files that describe the node.
var nodeFiles = []string{
	"/proc/version", "/proc/sys/kernel/osrelease", "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/isolated",
	"/sys/devices/system/node/online", "/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cpuset.cpus.effective",
}

// sysdumpParts gathers the parts. A part that fails does not stop the others.
func sysdumpParts(ctx context.Context, socket, configFlag string) []archivePart {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	usual, _ := defaultConfigFile()
	file := cmp.Or(configFlag, usual)
	var node api.Node
	var metricsAt string
	var parts []archivePart
	add := func(name string, from func() (any, error)) {
		value, err := from()
		p := archivePart{name: name, err: err}
		if text, ok := value.([]byte); ok {
			p.data = text
		} else if err == nil {
			p.data, p.err = json.MarshalIndent(value, "", "  ")
		}
		parts = append(parts, p)
	}
	asked := func(f func(*status.Client) error) error { return withClient(ctx, socket, f) }
	add("version.json", func() (any, error) { return cli.ThisBuild(), nil })
	add("status.json", func() (any, error) {
		err := asked(func(c *status.Client) (err error) { node, err = c.Status(ctx); return err })
		for i := range node.Containers {
			hideEnv(node.Containers[i].Values)
		}
		return node, err
	})
	add("configuration.json", func() (any, error) {
		var all api.Configuration
		err := asked(func(c *status.Client) (err error) { all, err = c.Config(ctx); return err })
		for _, k := range all.Keys {
			if k.Key == "http.address" {
				metricsAt = strings.Trim(k.Value, `"`)
			}
		}
		return all, err
	})
	add("events.json", func() (any, error) {
		events := []api.Event{}
		err := asked(func(c *status.Client) error {
			return c.Events(ctx, 0, false, func(e api.Event) error {
				hideEnv(e.Values)
				events = append(events, e)
				return nil
			})
		})
		return events, err
	})
	add("metrics.txt", func() (any, error) { return fetchMetrics(ctx, metricsAt) })
	add("config.yaml", func() (any, error) { return os.ReadFile(file) })
	add("doctor.json", func() (any, error) {
		return doctor.Run(ctx, doctor.Options{
			HostRoot: "/", ConfigFile: file, KubeletRoot: "/var/lib/kubelet", Ask: askStatus, Specs: agent.AskSpecs, Grants: agent.AskGrants,
		}), nil
	})
	for _, path := range nodeFiles {
		add("node"+path, func() (any, error) { return os.ReadFile(path) })
	}
	add("node/cgroup-mounts.txt", cgroupMounts)
	return parts
}

// hideEnv leaves out the values of environment variables.
func hideEnv(values []api.Value) {
	for i := range values {
		if strings.HasPrefix(values[i].Field, "env ") {
			values[i].Value = "(left out)"
		}
	}
}

// fetchMetrics reads the agent's metrics page.
func fetchMetrics(ctx context.Context, address string) ([]byte, error) {
	if address == "" {
		return nil, errors.New("http.address is not set, or the agent does not answer")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /metrics: %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 16<<20))
}

// cgroupMounts are the lines of /proc/self/mountinfo about cgroups and resctrl.
func cgroupMounts() (any, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	var keep strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, " - cgroup") || strings.Contains(line, " - resctrl") {
			keep.WriteString(line)
		}
	}
	return []byte(keep.String()), err
}

// pack writes the archive. Its missing.txt lists the missing files, and why they are missing.
func pack(w io.Writer, parts []archivePart) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	var missing strings.Builder
	put := func(name string, data []byte) error {
		h := &tar.Header{Name: filepath.Join("trimtab-sysdump", name), Mode: 0o600, Size: int64(len(data)), ModTime: time.Now().Truncate(time.Second)}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := t.Write(data)
		return err
	}
	for _, p := range parts {
		if p.err != nil {
			fmt.Fprintf(&missing, "%s: %v\n", p.name, p.err)
			continue
		}
		if err := put(p.name, p.data); err != nil {
			return fmt.Errorf("pack %s: %w", p.name, err)
		}
	}
	if missing.Len() > 0 {
		if err := put("missing.txt", []byte(missing.String())); err != nil {
			return fmt.Errorf("pack missing.txt: %w", err)
		}
	}
	return errors.Join(t.Close(), z.Close())
}
