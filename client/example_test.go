package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// Make a session, ask it something, and follow it from there until it rests.
func Example() {
	ctx := context.Background()
	c, err := client.New(client.Options{URL: "http://127.0.0.1:7717", Token: os.Getenv("DORMOUSE_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	session, err := c.Create(ctx, client.CreateOptions{Title: "a look around"})
	if err != nil {
		log.Fatal(err)
	}
	// Sent again with the same id, it is still one prompt.
	prompt, err := c.Send(ctx, session.Session, client.SendOptions{ID: "first", Content: []dormouse.Block{dormouse.Text("$ ls -la")}})
	if err != nil {
		log.Fatal(err)
	}
	cursor := prompt.Seq // kept somewhere, it is where the next run of this program goes on
	for event, err := range c.Follow(ctx, session.Session, client.FollowOptions{After: cursor}) {
		if err != nil {
			log.Fatal(err)
		}
		cursor = event.Seq
		fmt.Println(cursor, event.Type)
		if event.Type == dormouse.SessionStatusIdle {
			break
		}
	}
}

// What a server refuses is told apart by the errors of package dormouse.
func ExampleError() {
	c, err := client.New(client.Options{URL: "http://127.0.0.1:7717", Token: os.Getenv("DORMOUSE_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Wake(context.Background(), "sesn_01")
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case errors.Is(err, dormouse.ErrNotFound):
		fmt.Println("there is no such session")
	case ok:
		fmt.Println(refused.Status, refused.Code, refused.Message)
	case err != nil:
		fmt.Println("nobody answered:", err)
	}
}
