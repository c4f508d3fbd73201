// Command gendocs writes the reference pages in docs from tables in the code, such as configuration keys, hooks and NRI
// fields. go generate runs it. Its tests fail if a committed page is out of date.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:generate go run . ../../../docs

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gendocs DIRECTORY")
		os.Exit(2)
	}
	if err := writeAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

// page is one generated file.
type page struct {
	name string                 // the path of the file in the directory docs
	make func() (string, error) // returns the content of the file
}

// pages lists all generated files.
func pages() []page {
	return []page{
		{"config.md", reflowed(configPage)},
		{"config.schema.json", schemaPage},
		{"hooks.md", reflowed(hooksPage)},
		{"fields.md", reflowed(fieldsPage)},
		{"parity.md", reflowed(parityPage)},
		{"metrics.md", reflowed(metricsPage)},
		{"keys.md", reflowed(keysPage)},
		{"kinds.md", reflowed(kindsPage)},
		{"events.md", reflowed(eventsPage)},
		{"monitoring.md", monitoringPage},
		{"json.md", jsonPage},
		{"answers.schema.json", answersSchema},
		{"man/trimtab-config.5", configMan},
		{"scenarios.md", reflowed(scenariosPage)},
		{"scenario.schema.json", scenarioSchema},
	}
}

// writeAll makes all generated files, and writes them into the directory dir.
func writeAll(dir string) error {
	for _, p := range pages() {
		text, err := p.make()
		if err != nil {
			return fmt.Errorf("make %s: %w", p.name, err)
		}
		file := filepath.Join(dir, p.name)
		if filepath.Dir(p.name) == "man" {
			if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("write %s: %w", p.name, err)
			}
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", p.name, err)
		}
	}
	return nil
}
