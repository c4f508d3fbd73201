package vm

import (
	"context"
	"errors"
)

func debian(context.Context) (string, error) { return "", errors.New("no systemd guest yet") }

func (t tree) systemd(Stage) {}
