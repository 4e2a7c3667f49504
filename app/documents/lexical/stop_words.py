"""Function words per language: they tell languages apart, and are kept out of ranking. Case-folded, accents kept."""

from typing import Final

_WORDS: Final[dict[str, str]] = {
    "ar": """
        من في على إلى عن مع هذا هذه ذلك تلك التي الذي الذين هو هي هم هن أنا نحن أنت كان كانت يكون أن إن لا لم لن
        ما ماذا كيف متى أين هل أو ثم بل لكن قد كل بعض غير بين عند بعد قبل حتى منذ كما أي و ف ب ل ك
    """,
    "da": """
        ad af alle alt anden at blev blive bliver da de dem den denne der deres det dette dig din disse dog du
        efter eller en end er et for fra ham han hans har havde have hende hendes her hos hun hvad hvem hver
        hvilken hvis hvor hvordan hvorfor hvornår i ikke ind jeg jer jo kan kunne man mange med meget men mig
        min mine mit mod ned noget nogle nu når og også om op os over på selv sig sin sine sit skal skulle som
        sådan thi til ud under var vi vil ville vor være været
    """,
    "de": """
        aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf
        aus bei beim bin bis bist da damit dann das dass dasselbe dazu daß dein deine deinem deinen deiner dem
        den denn der deren derselbe des dessen dich die dies diese dieselbe dieselben diesem diesen dieser
        dieses dir doch dort du durch ein eine einem einen einer eines einige einigem einigen einiger einiges
        einmal er es etwas euch euer eure eurem euren eurer für gegen gewesen hab habe haben hat hatte hatten
        hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in indem ins ist ja jede jedem jeden
        jeder jedes jene jenem jenen jener jenes jetzt kann kein keine keinem keinen keiner könnte können machen
        man manche manchem manchen mancher manches mein meine meinem meinen meiner mich mir mit muss musste nach
        nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner selbst sich sie sind so
        solche solchem solchen solcher solches soll sollte sondern sonst um und uns unser unsere unserem unseren
        unserer unter viel vom von vor war waren warst warum was weg weil weiter welche welchem welchen welcher
        welches wenn wer werde werden wie wieder wieso will wir wird wirst wo wollen wollte wurde wurden während
        würde würden zu zum zur zwar zwischen über
    """,
    "el": """
        ο η το οι τα του της των τον την τους τις και κι ή να θα δεν δε μη μην με σε στο στη στην στον στους
        στις στα για από αν που πως πώς τι ποιος ποια ποιο όταν όπως αλλά ως είναι ήταν έχει έχουν είχε αυτό
        αυτός αυτή αυτά εγώ εσύ εμείς μου σου μας σας κατά μετά πριν προς χωρίς ένα ένας μια μία
    """,
    "en": """
        i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
        herself it its itself they them their theirs themselves what which who whom whose this that these those
        am is are was were be been being have has had having do does did doing done a an the and but if or
        because as until while of at by for with about against between into through during before after above
        below to from up down in out on off over under again further then once here there when where why how all
        any both each few more most other some such no nor not only own same so than too very s t d ll m re ve
        can cannot could will would shall should may might must just don now
    """,
    "es": """
        a al algo algunas alguno algunos ante antes como con contra cual cuales cuando cuál cuáles cuándo cómo
        de del desde donde dónde durante e el ella ellas ellos en entre era eran es esa esas ese eso esos esta
        estaba estado estamos estar estas este esto estos está están fue fueron ha había habían han has hasta
        hay he la las le les lo los me mi mis mucho muchos muy más mí nada ni no nos nosotros nuestra nuestro o
        os otra otras otro otros para pero poco por porque que quien quienes quién qué se sea ser si sin sobre
        son su sus suya suyo sí también tanto te tengo tiene tienen todo todos tu tus tú un una uno unos usted
        vosotros y ya yo él
    """,
    "fi": """
        ei eikä eivät ehkä en et että emme he heidän heille heitä hän hänen häntä ja jo joiden joita joka joko
        jolla jonka jos josta jota jotka kanssa keitä ketkä koko koska kuin kuinka kuka kun kuten me meidän
        meille meitä mihin mikä miksi millä milloin minkä minulla minun minut minä missä mistä mitkä mitä mukaan
        mutta myös ne niiden niin niitä noin nuo nyt näiden näitä nämä ole olen olet olemme oli olivat olla
        olisi on ollut ovat se sekä sen siinä siitä siihen sille sillä sinun sinä sitten sitä tai te teidän tuo
        tämä tämän tässä tästä tätä vaan vai vaikka voi yli
    """,
    "fr": """
        a ai aie ainsi alors après au aucun aucune aujourd aussi autre autres aux avait avant avec avez avoir
        avons c car ce ceci cela celle celles celui ces cet cette ceux chaque comme comment d dans de depuis des
        donc dont du elle elles en encore entre es est et eu eux fait faut furent fut hui ici il ils j je jusqu
        l la le lequel les leur leurs lors lorsqu lorsque lui là m ma mais me mes moi moins mon même mêmes n ne
        ni nos notre nous on ont ou où par parce pas peu peut plus plusieurs pour pourquoi puis qu quand que
        quel quelle quelles quels qui quoi s sa sans se selon sera seront ses si soi soit sommes son sont sous
        suis sur t ta te tes toi ton tous tout toute toutes tu un une va vers vos votre vous y à étaient était
        étant été être
    """,
    "hi": """
        का के की में है हैं था थे थी को से पर और या एक यह वह ये वे इस उस इन उन ने कि जो तो भी ही नहीं हो होता
        होती होते कर करने किया किसी कुछ अपने अपनी लिए साथ तक जब तब कब कहाँ क्या क्यों कैसे कौन मैं हम आप तुम
        मेरा हमारा गया गई गए द्वारा
    """,
    "it": """
        a ad agli ai al alla alle allo altra altre altri altro anche ancora avere aveva avevano c che chi ci ciò
        come con contro cosa cui d da dagli dai dal dall dalla dalle dallo degli dei del dell della delle dello
        dentro di dopo dove durante e ed era erano essere fra fu furono gli ha hanno ho i il in io l la le lei
        li lo loro lui ma me mi mia mie miei mio molto ne negli nei nel nell nella nelle nello noi non nostra
        nostro o ogni per perché più poi prima qual quale quali quando quanto quella quelle quelli quello questa
        queste questi questo qui s se sei senza si sia siamo siete sono sopra sotto sta stata stati stato su sua
        sue sugli sui sul sull sulla sulle sullo suo suoi te ti tra tu tua tuo tutti tutto un una uno v vi voi è
    """,
    "nl": """
        aan al alles als altijd andere ben bent bij daar dan dat de der deze die dit doch doen door dus een eens
        en er ge geen geweest haar had heb hebben heeft hem hen het hier hij hoe hun iemand iets ik in is ja je
        jij jou jouw kan kon kunnen maar me meer men met mij mijn moet na naar niet niets nog nu of om omdat ons
        onze ook op over reeds te tegen toch toen tot u uit uw van veel voor waar waarom wanneer want waren was
        wat we welke werd werden wezen wie wij wil worden wordt zal ze zei zelf zich zij zijn zo zonder zou
        zouden
    """,
    "no": """
        alle at av bare begge ble blei bli blir blitt både da de deg dei deira deires dem den denne der dere
        deres det dette di din disse dit du eit eller en enn er et ett etter for fordi fra før ha hadde han hans
        har hennes her hun hva hvem hver hvilken hvis hvor hvordan hvorfor i ikke ikkje inn ja jeg kan kom kunne
        kva man mange med meg mellom men mer mest mi min mine mitt mot mye nei noe noen nå når og også om opp
        oss over på samme seg selv si sin sine sitt skal skulle slik som så til under ut uten var ved vi vil
        ville være vært vår
    """,
    "pt": """
        a ao aos aquela aquelas aquele aqueles aquilo as até com como da das de dela delas dele deles depois do
        dos e ela elas ele eles em entre era eram essa essas esse esses esta estas estava este estes está estão
        eu foi foram há isso isto já la lhe lhes mais mas me mesmo meu meus minha minhas muito na nas nem no nos
        nossa nossas nosso nossos não nós num numa o onde os ou para pela pelas pelo pelos por porque qual quais
        quando que quem quê se sem ser seu seus sido sob sobre sua suas são só também te tem tenho ter teu tinha
        toda todas todo todos tu tua têm um uma umas uns você vocês à às é
    """,
    "ru": """
        и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по только ее её мне было
        вот от меня еще ещё нет о об из ему теперь когда даже ну ли если уже или ни быть был была были него до
        вас нибудь опять уж вам ведь там потом себя ничего ей может они тут где есть надо ней для мы тебя их чем
        сам чтоб чтобы без будто чего раз тоже себе под будет ж тогда кто этот эта эти это того потому этого
        какой какая какие совсем ним здесь этом один почти мой тем нее неё сейчас куда зачем всех никогда можно
        при другой хоть после над больше тот через нас про всего них много разве эту моя свою этой перед лучше
        том нельзя такой им более всегда конечно всю между который которая которое которые
    """,
    "sv": """
        alla allt andra att av blev bli blir blivit både de dem den denna deras dess dessa det detta dig din
        dina ditt du där då efter ej eller en er era ert ett från för ha hade han hans har henne hennes hon
        honom hur här i icke ingen inom inte jag ju kan kunde man med mellan men mer mig min mina mitt mot
        mycket ni nu när någon något några och också om oss på samma sedan sig sin sina sitta själv skulle som
        så sådan till under upp ut utan vad var vara varför varit varje vars vart vem vi vid vilka vilken vilket
        vår våra vårt än är åt över
    """,
}

STOP_WORDS: Final[dict[str, frozenset[str]]] = {
    language: frozenset(words.casefold().split()) for language, words in _WORDS.items()
}
"""ISO 639-1 code → function words, case-folded, NFC, with their accents."""
