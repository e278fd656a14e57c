# In the image, as its user: both servers, a recommender and four people, one period.
set -eu
services=
trap 'kill $services 2> /dev/null || true' EXIT
wait_for() { n=0; until "$@" > /dev/null 2>&1; do n=$((n + 1)); [ $n -lt 75 ]; sleep 2; done; }

for role in leader helper; do
    port=$([ $role = leader ] && echo 19444 || echo 19445)
    hdpmf aggregator init $role --role $role --organisation $role --name localhost --listen $port
done > /dev/null
hdpmf aggregator pair leader helper/card.json --same-host > /dev/null
hdpmf aggregator pair helper leader/card.json --same-host > /dev/null
seq 0 29 | sed 's/.*/&,Film &/; 1i item,title' > films.csv
hdpmf recommender init recommender --name shop --items films.csv --scale 1 5 --step 1 \
    --listen 19443 > /dev/null
hdpmf recommender servers recommender leader/servers.json --same-host > /dev/null
for role in leader helper; do
    hdpmf aggregator admit $role recommender/collector-card.json > /dev/null
done

for person in 0 1 2 3; do
    hdpmf device init $person.sqlite --name person-$person
    hdpmf recommender invite recommender --out $person.link
done > /dev/null

for role in leader helper; do
    hdpmf aggregator serve $role 2> $role.log &
    services="$services $!"
done
hdpmf recommender serve recommender > recommender.log 2>&1 &
services="$services $!"
for port in 19444 19445 19443; do
    wait_for python -c "import socket; socket.create_connection(('localhost', $port), 5)"
done
for person in 0 1 2 3; do
    hdpmf device join $person.sqlite $person.link --authority recommender/tls/authority.pem \
        --yes --look --same-host
    for i in $(seq 0 4); do
        hdpmf device rate $person.sqlite $(((person + 3 * i) % 30)) $((1 + (person + i) % 5))
    done
done > /dev/null
hdpmf recommender run recommender --period 60s --precision 5s --minimum 3
for person in 0 1 2 3; do
    hdpmf device join $person.sqlite --every 2 > join-$person.log 2>&1 &
    services="$services $!"
done
wait_for sh -c 'ls recommender/runs/*/summary.json'
hdpmf aggregator status leader
wait_for hdpmf device recommend 0.sqlite -n 3
hdpmf device recommend 0.sqlite -n 3
kill $services
wait
echo "federation: done"
