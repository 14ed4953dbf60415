"""Waits for the Deployment that the controller makes of the runtime, then asks the /readyz of each pod."""

import http.client
import json
import ssl
import sys
import time
from pathlib import Path

from adapter.cli import main

PATIENCE_SECONDS = 60
account, server, namespace, name, service = sys.argv[1:]
headers = {"Authorization": f"Bearer {Path(account, 'token').read_text()}"}
context = ssl.create_default_context(cafile=f"{account}/ca.crt")
end = time.monotonic() + PATIENCE_SECONDS
while True:
    try:
        api = http.client.HTTPSConnection(server, timeout=10, context=context)
        api.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}", headers=headers)
        answer = json.load(api.getresponse())
    except (OSError, http.client.HTTPException) as error:
        answer = {"message": str(error)}
    if answer.get("kind") == "Deployment":
        break
    if time.monotonic() > end:
        sys.exit(
            f"no Deployment {name} in {namespace} after {PATIENCE_SECONDS} s ({answer.get('message')}): the controller cannot reconcile "
            "the runtime. Its log has the reason; the namespace needs the label modelmesh-enabled=true"
        )
    time.sleep(1)
if answer["spec"]["replicas"] == 0:
    sys.stdout.write(f"the Deployment {name} is scaled to zero: pods come with the first model\n")
    sys.exit(0)
sys.exit(main(["probe", "--ready", "--host", service, "--timeout", "10"]))
