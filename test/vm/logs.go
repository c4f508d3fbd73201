package vm

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// logsDir returns the directory for the logs of failed tests: the value of TRIMTAB_E2E_LOGS, or .cache/e2e of the
// checkout.
func logsDir() string {
	if dir := os.Getenv("TRIMTAB_E2E_LOGS"); dir != "" {
		return dir
	}
	return filepath.Join(packageDir(), "../../.cache/e2e")
}

// keepLogs saves the output on the guest's console, QEMU's output and the guest's logs, and prints the directory of the
// saved files.
func (m *Machine) keepLogs() {
	name := strings.NewReplacer("/", "_", " ", "_").Replace(m.t.Name() + "-" + m.Guest.String())
	dir := filepath.Join(logsDir(), name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		m.t.Logf("cannot save logs: make the directory %s: %v", dir, err)
		return
	}
	for _, file := range []string{m.process.console(), m.process.outputFile()} {
		b, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o644)
		}
		if err != nil {
			m.t.Logf("cannot save a log: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b, err := m.client.tar(ctx, "/var/log")
	if err == nil {
		err = unpack(b, dir)
	}
	if err != nil {
		m.t.Logf("cannot save the guest's /var/log: %v", err)
	}
	m.t.Logf("the logs of the virtual machine %s are in %s", m.Guest, dir)
}

// unpack writes the files of a tar archive below dir.
func unpack(archive []byte, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		b, err := io.ReadAll(t)
		if err == nil {
			err = root.WriteFile(header.Name, b, 0o644)
		}
		if err != nil {
			return err
		}
	}
}
