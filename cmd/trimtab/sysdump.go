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
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/doctor"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newSysdump() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sysdump [FILE.tar.gz]",
		Short: "Collect what a maintainer needs to find a fault",
		Long: `Packs a compressed archive: the version, the agent's status, configuration and journal,
the agent's metrics if http.address is set, the results of 'trimtab doctor', and the
node's kernel, CPUs, NUMA nodes and cgroup mounts. If a part cannot be collected, the
archive has the reason instead. The file name - means standard output.

The archive has no values of environment variables, no keys and no tokens. It has names of
pods, and the labels and annotations on which decisions are based.`,
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
			return writeArchive(cmd.OutOrStdout(), parts)
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return &usageError{fmt.Errorf("write the archive: %w", err)}
		}
		if err := errors.Join(writeArchive(f, parts), f.Close()); err != nil {
			return errors.Join(err, os.Remove(file))
		}
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "wrote %s: it has %d parts\n", file, len(parts))
		for _, p := range parts {
			if p.err != nil {
				fmt.Fprintf(w, "  missing: %s: %v\n", p.name, p.err)
			}
		}
		return nil
	}
	return cmd
}

// archivePart is one file of the archive that the command sysdump writes. If the command could not collect the file,
// err is not nil and the archive lacks the file.
type archivePart struct {
	name string
	data []byte
	err  error
}

// nodeFiles are files in /proc and /sys of the node. The archive of the command sysdump has a copy of each.
var nodeFiles = []string{
	"/proc/version", "/proc/sys/kernel/osrelease", "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/isolated",
	"/sys/devices/system/node/online", "/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cpuset.cpus.effective",
}

// sysdumpParts collects the files for the archive of the command sysdump. If it cannot collect a file, it continues
// with the next file.
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
		metricsAt = metricsAddress(all)
		hideRuleEnv(all)
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
	add("config.yaml", func() (any, error) { return readWithoutEnv(file) })
	add("doctor.json", func() (any, error) {
		return doctor.Run(ctx, doctor.Options{
			HostRoot: "/", ConfigFile: file, KubeletRoot: "/var/lib/kubelet", Ask: askStatus, Specs: agent.QuerySpecs, Grants: agent.QueryGrants,
		}), nil
	})
	for _, path := range nodeFiles {
		add("node"+path, func() (any, error) { return os.ReadFile(path) })
	}
	add("node/cgroup-mounts.txt", cgroupMounts)
	return parts
}

// hideEnv replaces, in the values that the agent decided for a container, each value of an environment variable.
func hideEnv(values []api.Value) {
	for i := range values {
		if strings.HasPrefix(values[i].Field, "env ") {
			values[i].Value, values[i].Kernel, values[i].Note = hiddenValue, "", ""
		}
	}
}

// metricsAddress returns the address on which the agent serves its metrics, or "" if it does not serve them.
func metricsAddress(c api.Configuration) string {
	for _, k := range c.Keys {
		if k.Key == "http.address" {
			return strings.Trim(k.Value, `"`)
		}
	}
	return ""
}

// hideRuleEnv replaces the values of environment variables that rules set. It changes the key rules in c, the
// configuration that the agent reports.
func hideRuleEnv(c api.Configuration) {
	for i, k := range c.Keys {
		if k.Key != "rules" {
			continue
		}
		text, err := withoutEnv([]byte(k.Value))
		if err != nil {
			text = []byte(`"` + hiddenValue + `"`)
		}
		c.Keys[i].Value = strings.TrimSpace(string(text))
	}
}

// hiddenValue replaces each hidden value.
const hiddenValue = "(left out)"

// readWithoutEnv reads a configuration file and hides the values of environment variables.
func readWithoutEnv(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return withoutEnv(text)
}

// withoutEnv hides the values of environment variables in a configuration, or in a section of a configuration.
func withoutEnv(text []byte) ([]byte, error) {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("the file is left out: it is not valid YAML, so the command cannot remove the values of environment variables: %w", err)
	}
	if !hideEnvInYAML(&document) {
		return text, nil
	}
	return yamlv3.Marshal(&document)
}

// hideEnvInYAML replaces the values of environment variables in rules. It searches a YAML node and all nodes below this
// node, and reports whether it found such a value.
func hideEnvInYAML(n *yamlv3.Node) (found bool) {
	values := map[string]*yamlv3.Node{}
	for i := 0; n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
		values[n.Content[i].Value] = n.Content[i+1]
	}
	if field := values["field"]; field != nil && field.Value == lifecycle.Env.String() {
		for _, key := range []string{"value", "valueExpression"} {
			if v := values[key]; v != nil && v.Value != "" {
				v.SetString(hiddenValue)
				found = true
			}
		}
	}
	for _, below := range n.Content {
		found = hideEnvInYAML(below) || found
	}
	return found
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

// cgroupMounts returns the lines of /proc/self/mountinfo about cgroups and resctrl.
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

// writeArchive writes the archive. A file missing.txt in it lists the parts that are missing, and why.
func writeArchive(w io.Writer, parts []archivePart) error {
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
