package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// keySize is the size of the secret that signs records, in bytes.
const keySize = 32

// recordKey reads the secret that signs records, and makes it at the first
// start. Without a file name the secret lasts as long as the process.
func (s *stateFiles) recordKey() ([]byte, error) {
	if s.key != nil {
		return s.key, nil
	}
	key, err := s.readKey()
	s.key = key
	return key, err
}

func (s *stateFiles) readKey() ([]byte, error) {
	file := s.paths.Key
	if file == "" {
		return newKey(), nil
	}
	dir, name := directory(s.disk, filepath.Dir(file)), filepath.Base(file)
	key, err := dir.ReadSecret(name)
	switch {
	case err == nil && len(key) == keySize:
		s.seal, s.returning = key, true
		return key, nil
	case err == nil:
		return nil, fmt.Errorf("record key %s (paths.key): %d bytes instead of %d; delete it, and the agent creates a new one; it then decides again for containers with records of the old one",
			file, len(key), keySize)
	case errors.Is(err, statefile.ErrUntrusted):
		return nil, fmt.Errorf("record key (paths.key): %w; any user who has read it can sign records: delete it, and the agent creates a new one (it then decides again for containers with records of the old one), "+
			"or, if no user has, give it to the agent's user with mode 0600", err)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("record key (paths.key): %w", err)
	}
	if err := dir.Prepare(); errors.Is(err, statefile.ErrUntrusted) {
		s.log.Warn("others can replace the key that signs records", logkey.Key, "paths.key", logkey.Err, err)
	} else if err != nil {
		return nil, fmt.Errorf("make the record key (paths.key): %w", err)
	}
	key = newKey()
	if err := dir.Write(name, key); err != nil {
		return nil, fmt.Errorf("make the record key (paths.key): %w", err)
	}
	s.seal = key
	return key, nil
}

func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return key
}
